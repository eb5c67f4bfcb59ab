"""The script file of a scripted model: steps with intents, independent of the tools that an agent offers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, field

from proctor.model.wire import BreakOff, Part, Pause, Reasoning, Text
from proctor.spec.duration import parse_duration_s
from proctor.spec.source_file import decode_file
from proctor.spec.struct import Duration, Spec

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Words: TypeAlias = Annotated[str, Meta(min_length=1)]


class Say(Spec, frozen=True, kw_only=True):
    """Text for the user."""

    text: Words
    """The text. Must not be empty."""
    chunk_chars: Positive | None = None
    """How many characters each streamed piece has at most. Default: the text is sent as one piece."""
    repeat: Positive = 1
    """How many times the text is sent, one after the other. Default: 1."""


class Run(Spec, frozen=True, kw_only=True):
    """A shell command for the agent to run."""

    command: Words
    """The command line for the shell."""
    escalate: bool = False
    """Whether to request that the command runs outside the agent's sandbox. Default: false."""
    wait: Duration | None = None
    """How long the agent should wait for the command to end, such as `30s`. Default: the agent's own timeout."""

    def __post_init__(self) -> None:
        if self.wait is not None:
            parse_duration_s(self.wait)


class Patch(Spec, frozen=True, kw_only=True):
    """A change to one file: replace `old` with `new`, write `content`, or `delete` it. Exactly one of the three."""

    file: Annotated[str, Meta(min_length=1, pattern=r"\A[^\n]*\Z")]
    """The path of the file, relative to the workspace."""
    old: Words | None = None
    """The complete lines to replace; needs `new`. Default: no replacement."""
    new: str | None = None
    """The lines that replace `old`. A missing final newline is added. Default: no replacement."""
    content: str | None = None
    """The whole content of the file. A missing final newline is added. Default: the content is not written."""
    delete: bool = False
    """Whether to delete the file. Default: false."""

    def __post_init__(self) -> None:
        changes = (self.old is not None, self.content is not None, self.delete)
        if changes.count(True) != 1 or (self.old is None) != (self.new is None):
            raise ValueError("`patch` needs exactly one of `old` with `new`, `content`, or `delete: true`")


class Call(Spec, frozen=True, kw_only=True):
    """A call of a tool that the mission defines, for example through an MCP server."""

    tool: Words
    """The name of the tool, or `namespace.name` if the name is not unique."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """The arguments of the call. Default: none."""


class Usage(Spec, frozen=True, kw_only=True):
    """The token counts that a reply reports. Counts that are left out are estimated from sizes, 4 bytes per token."""

    input: Count | None = None
    """Input tokens, including the cached ones. Default: estimated from the request."""
    cached: Count | None = None
    """Input tokens that were read from a cache. Default: 0."""
    output: Count | None = None
    """Output tokens, including the reasoning tokens. Default: estimated from the reply."""
    reasoning: Count | None = None
    """Output tokens that were spent on reasoning. Default: estimated from `think`."""


class Failed(Spec, frozen=True, kw_only=True):
    """A provider error that ends a reply in the middle of its stream."""

    code: Words
    """The provider's error code, such as `overloaded_error`."""
    message: str = "a scripted failure"
    """The provider's error message. Default: `a scripted failure`."""


class Fault(Spec, frozen=True, kw_only=True):
    """What goes wrong with a reply. Exactly one of status, cut_after, silent_after, garbled_after and failed."""

    status: Annotated[int, Meta(ge=400, le=599)] | None = None
    """Answer with this HTTP error status (400 to 599) instead of a reply. Default: no HTTP error."""
    body: dict[str, Any] | str | None = None
    """The body of the HTTP error; only with `status`. Default: an error object in the provider's format."""
    retry_after: Count | None = None
    """The `retry-after` header of the HTTP error, in seconds; only with `status`. Default: no such header."""
    cut_after: Count | None = None
    """Close the connection after this many events of the stream. Default: the stream is not cut."""
    silent_after: Count | None = None
    """Send nothing more after this many events, but keep the connection open. Default: the stream continues."""
    garbled_after: Count | None = None
    """Send an event that is not valid JSON after this many events, then end. Default: no invalid event."""
    failed: Failed | None = None
    """End the reply with this provider error. Default: the reply ends normally."""

    def __post_init__(self) -> None:
        faults = (self.status, self.cut_after, self.silent_after, self.garbled_after, self.failed)
        if sum(fault is not None for fault in faults) != 1:
            raise ValueError(
                "`fault` must be `hang` or have exactly one of `status`, `cut_after`, `silent_after`, "
                "`garbled_after`, `failed`"
            )
        if self.status is None and not (self.body is None and self.retry_after is None):
            raise ValueError("`body` and `retry_after` need `status`")

    @property
    def break_off(self) -> BreakOff | None:
        """How the stream of the reply breaks off; None if it does not."""
        if self.cut_after is not None:
            return BreakOff(how="cut", after=self.cut_after)
        if self.silent_after is not None:
            return BreakOff(how="silent", after=self.silent_after)
        return None if self.garbled_after is None else BreakOff(how="garbled", after=self.garbled_after)


ToolIntent: TypeAlias = Run | Patch | Call
Intent: TypeAlias = Part | ToolIntent


class Action(Spec, frozen=True, kw_only=True):
    """One entry of `do`: exactly one of delay, think, say, run, patch and call."""

    delay: Duration | None = None
    """Pause in the stream for this long, such as `500ms`. Default: no pause."""
    think: Words | None = None
    """Reasoning of the model, as the summary that an agent may show. Default: no reasoning."""
    say: Words | Say | None = None
    """Text for the user, or an object with options. Default: no text."""
    run: Words | Run | None = None
    """A shell command for the agent to run, or an object with options. Default: no command."""
    patch: Patch | None = None
    """A change to one file. Default: no change."""
    call: Call | None = None
    """A call of a tool that the mission defines. Default: no call."""

    def __post_init__(self) -> None:
        if len(tuple(self.intents())) != 1:
            raise ValueError("an entry of `do` needs exactly one of delay, think, say, run, patch, call")

    def intents(self) -> Iterator[Intent]:
        """Yield what to do, in the order of the fields above."""
        if self.delay is not None:
            yield Pause(delay_s=parse_duration_s(self.delay))
        if self.think is not None:
            yield Reasoning(text=self.think)
        if self.say is not None:
            say = Say(text=self.say) if isinstance(self.say, str) else self.say
            yield Text(text=say.text, chunk_chars=say.chunk_chars, repeat=say.repeat)
        if self.run is not None:
            yield Run(command=self.run) if isinstance(self.run, str) else self.run
        if self.patch is not None:
            yield self.patch
        if self.call is not None:
            yield self.call


class Step(Action, frozen=True, kw_only=True):
    """One model reply, or a fault in its place. The intents of one step are sent in the order of the fields."""

    do: Annotated[list[Action], Meta(min_length=1)] | None = None
    """The intents of the reply in an explicit order, in place of the keys above. Default: the keys above."""
    usage: Usage | None = None
    """The token counts that the reply reports. Default: estimated from sizes."""
    fault: Literal["hang"] | Fault | None = None
    """What goes wrong with the reply; `hang` never answers. Default: nothing."""
    tries: Annotated[list["Step"], Meta(min_length=1)] | None = None
    """The answers to the first, second, … request for this step; the last entry repeats. Default: always the same."""

    def __post_init__(self) -> None:
        intents = tuple(Action.intents(self))
        if self.tries is not None:
            if intents or self.do or self.usage or self.fault:
                raise ValueError("a step with `tries` must not have other keys")
            if any(step.tries for step in self.tries):
                raise ValueError("an entry of `tries` must not have `tries`")
        elif self.do and intents:
            raise ValueError("a step with `do` must not have delay, think, say, run, patch or call")
        elif self.replaces_reply and (
            self.do or self.usage or any(not isinstance(intent, Pause) for intent in intents)
        ):
            raise ValueError("a step with `fault: hang` or a fault with `status` may only have `delay` besides it")
        elif not (intents or self.do or self.fault):
            raise ValueError("a step needs at least one of delay, think, say, run, patch, call, do, fault, tries")

    @property
    def replaces_reply(self) -> bool:
        """Whether the step's fault is sent instead of a reply."""
        return self.fault == "hang" or (isinstance(self.fault, Fault) and self.fault.status is not None)

    def intents(self) -> Iterator[Intent]:
        """Yield the intents of the reply, in order."""
        if self.do is None:
            yield from Action.intents(self)
        else:
            for action in self.do:
                yield from action.intents()

    def for_try(self, number: int) -> "Step":
        """Return the answer to a request for this step, counted from 0. The last entry of `tries` repeats."""
        return self if self.tries is None else self.tries[min(number, len(self.tries) - 1)]


class Script(Spec, frozen=True, kw_only=True):
    """A script file."""

    version: Literal[1]
    """The version of the file format: 1."""
    steps: Annotated[list[Step], Meta(min_length=1)]
    """The replies of the model, in order; at least one."""
    continued: Annotated[list[Step], Meta(min_length=1)] | None = None
    """The replies in an attempt that continues another one after a wait (`schedule.continue_after_wait`). Default:
    `steps`, from the first one."""

    def for_attempt(self, *, is_continued: bool) -> "Script":
        """Return the script of one attempt, which has only `steps`."""
        steps = self.continued if is_continued and self.continued is not None else self.steps
        return Script(version=self.version, steps=steps)


def load_script(path: Path) -> Script:
    """Read a script file. Raises InputError with file, line and key path for every finding."""
    return decode_file(path, Script).value
