"""What a scripted model says: steps that name intent, never an agent's tool."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, field

from proctor.model.wire import BreakOff, Part, Pause, Text, Thought
from proctor.spec.duration import parse_duration_s
from proctor.spec.marked import decode_file
from proctor.spec.struct import Duration, Spec

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Words: TypeAlias = Annotated[str, Meta(min_length=1)]


class Say(Spec, frozen=True, kw_only=True):
    """Words for the user: `text` said `repeat` times, each time in pieces of `chunk_chars` (whole by default)."""

    text: Words
    chunk_chars: Positive | None = None
    repeat: Positive = 1


class Run(Spec, frozen=True, kw_only=True):
    """A shell command. `escalate` asks to run it outside the sandbox; `wait` is how long to wait for its end."""

    command: Words
    escalate: bool = False
    wait: Duration | None = None

    def __post_init__(self) -> None:
        if self.wait is not None:
            parse_duration_s(self.wait)


class Patch(Spec, frozen=True, kw_only=True):
    """A change of one file: whole lines `old` become `new`, or it holds `content`, or it is deleted.

    What it writes ends with a newline.
    """

    file: Annotated[str, Meta(min_length=1, pattern=r"\A[^\n]*\Z")]
    old: Words | None = None
    new: str | None = None
    content: str | None = None
    delete: bool = False

    def __post_init__(self) -> None:
        ways = (self.old is not None, self.content is not None, self.delete)
        if ways.count(True) != 1 or (self.old is None) != (self.new is None):
            raise ValueError("a patch has `old` and `new`, or `content`, or `delete: true`")


class Call(Spec, frozen=True, kw_only=True):
    """A call of a tool that the mission itself defines, by its name or `namespace.name`."""

    tool: Words
    arguments: dict[str, Any] = field(default_factory=dict)


class Usage(Spec, frozen=True, kw_only=True):
    """Tokens a reply claims to have cost; what is left out is derived from sizes."""

    input: Count | None = None
    cached: Count | None = None
    output: Count | None = None
    reasoning: Count | None = None


class Failed(Spec, frozen=True, kw_only=True):
    """What a provider says in the middle of a reply that it cannot finish, by its own code."""

    code: Words
    message: str = "a scripted failure"


class Fault(Spec, frozen=True, kw_only=True):
    """What goes wrong with a reply: it comes as an HTTP error; or, after so many events, it is cut off, falls silent or
    goes on with what is no event; or it ends with the provider's word that it `failed`.
    """

    status: Annotated[int, Meta(ge=400, le=599)] | None = None
    body: dict[str, Any] | str | None = None
    retry_after: Count | None = None
    cut_after: Count | None = None
    silent_after: Count | None = None
    garbled_after: Count | None = None
    failed: Failed | None = None

    def __post_init__(self) -> None:
        ways = (self.status, self.cut_after, self.silent_after, self.garbled_after, self.failed)
        if sum(way is not None for way in ways) != 1:
            raise ValueError(
                "a fault has one of `status`, `cut_after`, `silent_after`, `garbled_after`, `failed`, "
                "or is the word `hang`"
            )
        if self.status is None and not (self.body is None and self.retry_after is None):
            raise ValueError("`body` and `retry_after` go with `status`")

    @property
    def break_off(self) -> BreakOff | None:
        """How the stream of a reply breaks off, if it does."""
        if self.cut_after is not None:
            return BreakOff(how="cut", after=self.cut_after)
        if self.silent_after is not None:
            return BreakOff(how="silent", after=self.silent_after)
        return None if self.garbled_after is None else BreakOff(how="garbled", after=self.garbled_after)


ToolIntent: TypeAlias = Run | Patch | Call
Intent: TypeAlias = Part | ToolIntent


class Deed(Spec, frozen=True, kw_only=True):
    """One intent, where the order within a reply matters."""

    delay: Duration | None = None
    think: Words | None = None
    say: Words | Say | None = None
    run: Words | Run | None = None
    patch: Patch | None = None
    call: Call | None = None

    def __post_init__(self) -> None:
        if len(tuple(self.intents())) != 1:
            raise ValueError("an entry of `do` is one of delay, think, say, run, patch, call")

    def intents(self) -> Iterator[Intent]:
        """What to do, in the order of the fields above."""
        if self.delay is not None:
            yield Pause(delay_s=parse_duration_s(self.delay))
        if self.think is not None:
            yield Thought(text=self.think)
        if self.say is not None:
            say = Say(text=self.say) if isinstance(self.say, str) else self.say
            yield Text(text=say.text, chunk_chars=say.chunk_chars, repeat=say.repeat)
        if self.run is not None:
            yield Run(command=self.run) if isinstance(self.run, str) else self.run
        if self.patch is not None:
            yield self.patch
        if self.call is not None:
            yield self.call


class Step(Deed, frozen=True, kw_only=True):
    """One model reply, or what comes instead of one. `tries` are what the first, second, … request for it gets."""

    do: Annotated[list[Deed], Meta(min_length=1)] | None = None
    usage: Usage | None = None
    fault: Literal["hang"] | Fault | None = None
    tries: Annotated[list["Step"], Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        own = tuple(Deed.intents(self))
        if self.tries is not None:
            if own or self.do or self.usage or self.fault:
                raise ValueError("a step with `tries` holds nothing else")
            if any(step.tries for step in self.tries):
                raise ValueError("an entry of `tries` has no `tries` of its own")
        elif self.do and own:
            raise ValueError("a step has `do`, or intents of its own, not both")
        elif self.replaces_reply and (self.do or self.usage or any(not isinstance(intent, Pause) for intent in own)):
            raise ValueError("a fault that comes instead of a reply has nothing beside it but `delay`")
        elif not (own or self.do or self.fault):
            raise ValueError("a step has at least one of delay, think, say, run, patch, call, do, fault, tries")

    @property
    def replaces_reply(self) -> bool:
        return self.fault == "hang" or (isinstance(self.fault, Fault) and self.fault.status is not None)

    def intents(self) -> Iterator[Intent]:
        if self.do is None:
            yield from Deed.intents(self)
        else:
            for deed in self.do:
                yield from deed.intents()

    def of_try(self, number: int) -> "Step":
        """What the request with this number gets, counted from 0; the last try stands for all that follow."""
        return self if self.tries is None else self.tries[min(number, len(self.tries) - 1)]


class Script(Spec, frozen=True, kw_only=True):
    """A whole script file."""

    version: Literal[1]
    steps: Annotated[list[Step], Meta(min_length=1)]


def load_script(path: Path) -> Script:
    """Reads a script, or raises InputError with file, line and key path for all that is wrong with it."""
    return decode_file(path, Script).value
