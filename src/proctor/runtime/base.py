"""The contract between Proctor's supervisor and a runtime, which drives one agent program.

The order of calls for one attempt is `Runtime.check_options`, `Runtime.locate`, `Runtime.open_host`,
`Host.open_session`; then for each turn `Session.give`, if there is something to give, `Session.turn`,
`Session.interrupt` and `Session.settle`; and at the end `Session.read_history`, if the thread is persistent. Between
turns `Session.read_context` may be called, if a context engine needs it.
Every line from or to the agent is recorded through a `Tap` before the runtime acts on it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from proctor.clock import Clock
from proctor.contain.fences import Hiding
from proctor.contain.intent import IntentLog
from proctor.contain.ladder import Containment
from proctor.event.message import Message
from proctor.event.model import Event
from proctor.event.row import Direction, Row, SupervisorRow
from proctor.evidence.redact import TextStream
from proctor.fact import Fact
from proctor.ids import AttemptId, CallId, Digest, EntryId, ProcessId, RuntimeId, ThreadId, TurnId
from proctor.runtime.capability import Capabilities, CapabilityProfile
from proctor.runtime.conversion import Omission
from proctor.runtime.credential import Account
from proctor.runtime.failures import Failure
from proctor.spec.choices import Approvals, Login, Profile, Sandbox
from proctor.spec.fence import Contain
from proctor.transport.channel import Channel


class Launcher(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A script that starts the agent program in its place, such as the JavaScript file of an npm package."""

    path: str
    """The script, with all symbolic links resolved. This file is started."""
    sha256: str
    """SHA-256 of the script, in hexadecimal."""


class Executable(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The identity of an agent program: its file, its bytes, its version and how it was found."""

    path: str
    """The path at which the program was found."""
    real_path: str
    """The program that runs: `path` with all symbolic links resolved, or the program that its launcher starts."""
    sha256: str
    """SHA-256 of the file at `real_path`, in hexadecimal."""
    size_bytes: int
    """Size of the file at `real_path`."""
    source: str
    """How the program was found: `env-override`, `bundled-package`, `agents-folder`, `system-path` or `workspace`."""
    version: str | None = None
    """The version that the program or its package reports."""
    locked_sha256: str | None = None
    """The SHA-256 that the RECORD of the installed wheel lists for the file."""
    shims: tuple[str, ...] = ()
    """The symbolic links that lead from `path` to `real_path`, or to the launcher."""
    launcher: Launcher | None = None
    """The script that is started and that starts the program. Null if the program itself is started."""
    package: str | None = None
    """Name and version of the package that the program was installed with."""
    package_version: str | None = None
    """Version of that package, if it must equal the version of the program."""

    @property
    def is_locked(self) -> bool | None:
        """Whether the file has the digest in its wheel's RECORD. None if there is no record of it."""
        return None if self.locked_sha256 is None else self.locked_sha256 == self.sha256

    @property
    def start_path(self) -> str:
        """The file to start: the launcher, or the program itself."""
        return self.real_path if self.launcher is None else self.launcher.path

    @property
    def cache_key(self) -> str:
        """The key of what the program prints about itself. A launcher may change that, so it is part of the key."""
        return self.sha256 if self.launcher is None else f"{self.sha256}-{self.launcher.sha256}"


class Tap(Protocol):
    """The recorder of one attempt or one host process. A runtime records through it first, and acts afterwards.

    No method raises: if a record cannot be written, the supervisor stops the attempt.
    """

    def stage(self, dir_: Direction, data: bytes, *, stream: TextStream | None = None) -> None:
        """Queue one line, without its line end, until the next `commit`.

        `stream` names the part of the line that is a piece of a streamed text, so that a secret that is split over
        several pieces is masked.
        """

    def commit(self) -> None:
        """Write all queued lines to the record, then derive events from them."""

    def record(self, seen: SupervisorRow) -> None:
        """Write one observation or decision of Proctor itself, after all queued lines."""

    def release(self, key_prefix: str) -> None:
        """Write the text that redaction still withholds of the streams whose key has this prefix: they have ended."""


class Normalizer(Protocol):
    """Turns recorded rows into events.

    It must be pure (no file, clock, random number or socket): a later process must derive the same events from the
    same rows.
    """

    def feed(self, row: Row) -> Iterable[Event]:
        """Return the events of the next row. Must not raise: a frame that it does not know is `Unrecognized`."""


def sees_tool_calls(normalizer: Normalizer) -> bool:
    """Return whether the rows of its runtime show the agent's tool calls.

    A normalizer of a runtime that cannot see them has an attribute `sees_tool_calls = False`. Their number is then
    unknown, as is everything that depends on it.
    """
    return bool(getattr(normalizer, "sees_tool_calls", True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """The model that a session uses, and how the agent authenticates to it."""

    provider: str
    name: str
    base_url: str | None = None
    """None means the default address of the provider."""
    key_variable: str | None = None
    """The environment variable that holds the credential. None if the agent does not get it from a variable."""
    login: Login = Login.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRequest:
    """The parameters of one host.

    A host is one agent process that carries many sessions, or, if each session has its own process, what those
    processes share.
    """

    process: ProcessId
    executable: Executable | None
    """What `Runtime.locate` returned."""
    home: Path
    """The folder for the agent's settings and state. It may not exist yet."""
    tmp: Path
    """The temporary folder of the host. It is never above `home`."""
    env: Mapping[str, str]
    """The environment of every process of this host. The runtime adds its `reserved_variables`."""
    containment: Containment
    intents: IntentLog
    """The log in which each process is noted before it is started, so that a later run can end it."""
    clock: Clock
    model: ModelChoice
    wrap_channel: Callable[[Channel], Channel] | None = None
    """Must be applied to the channel of each process, if it is set. Fault injection uses it."""
    profile: Profile = Profile.FRESH
    user_home: Path | None = None
    """The user's own home of the agent program, if the flow uses it.

    It holds an inherited login. With `Profile.MINE` it replaces `home`.
    """
    options: Mapping[str, Any] = field(default_factory=dict)
    """The flow's `options.<runtime id>`. `Runtime.check_options` has accepted them."""
    hiding: Hiding | None = None
    """What every process of the agent that has no fences must not see: the `fences` of `wrap`. None for nothing."""

    @property
    def program(self) -> Executable:
        """The executable, for a runtime whose `locate` never returns None."""
        assert self.executable is not None, "the runtime located no program"
        return self.executable


class Decision(StrEnum):
    """The answers that a `Decide` callback may return."""

    ACCEPT = "accept"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An agent's request for approval, in terms that are the same for every runtime."""

    request: str
    """The id of the request, as it is recorded."""
    about: str
    """The kind of action, such as `command` or `patch`."""
    command: str | None = None
    cwd: str | None = None
    paths: tuple[str, ...] = ()
    """The files that the action would change, as far as the agent names them."""
    reason: str | None = None
    """The agent's explanation."""
    call: CallId | None = None
    """The tool call that waits for the answer."""
    native: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of the request, as the agent sent them."""


Decide = Callable[[Question], Awaitable[Decision]]
"""Answers a question under `approvals: ask`. The stall, turn and attempt clocks are paused while it runs."""


class Yield(Exception):  # noqa: N818  it is no error
    """Raised by a caller's tool to end the running turn. A context engine does not get such a turn.

    Its message is recorded as the reason.
    """


CallTool = Callable[[Any], Awaitable[str]]
"""Runs a caller's tool with the agent's arguments. If it raises, the agent receives the error as the tool's failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that the caller of Proctor offers to the agent."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON Schema of the arguments."""
    call: CallTool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """The parameters of one session. A session belongs to one attempt and one thread of the agent."""

    attempt: AttemptId
    workspace: Path
    """The agent's working directory."""
    tmp: Path
    """The session's temporary folder, which the agent's commands may write to."""
    sandbox: Sandbox
    approvals: Approvals
    model: ModelChoice
    profile: Profile = Profile.FRESH
    options: Mapping[str, Any] = field(default_factory=dict)
    """The flow's `options.<runtime id>`."""
    decide: Decide | None = None
    """Answers questions under `approvals: ask`. Without it they are denied."""
    decide_deadline_s: float = 120.0
    """A question that `decide` has not answered by then is denied."""
    tools: tuple[Tool, ...] = ()
    tool_deadline_s: float = 120.0
    """A tool call that has not returned by then fails."""
    pause_clocks: Callable[[], AbstractContextManager[None]] = nullcontext
    """Must be entered while `decide` or a tool is awaited: the attempt's clocks are paused inside it."""
    is_persistent: bool = False
    """Whether the agent must keep the thread, so that a later session can resume it."""
    resume: ThreadId | None = None
    """A persistent thread to continue. At most one of `resume` and `fork` is set."""
    fork: ThreadId | None = None
    """A persistent thread whose history a new thread begins with."""
    fork_through: TurnId | None = None
    """The last turn of the forked thread that the new one gets. None for all."""
    instructions: str | None = None
    """Instructions that a new thread starts with, in the developer or system role. Requires `takes_instructions`.

    The agents freeze them: on a resumed or forked thread other instructions have no effect at first. Repeat them there
    all the same: Codex puts those of the last start, resume or fork into the history that it shortens, or none.
    `Session.give` adds instructions to any thread.
    """
    history: tuple[Message, ...] = ()
    """Messages that the thread is given before its first turn. Requires `takes_history`.

    Equal to a first `Session.give`, but an agent that can read a long history faster in another way does so.
    """
    expects_instructions: bool = False
    """Whether `Session.give` may be called with instructions after the session has begun. Some agents must prepare."""
    contain: Contain = Contain.FENCED
    """Whether an agent that has no sandbox itself is started inside Proctor's fences."""
    hidden: tuple[Path, ...] = ()
    """Paths that the fences hide from the agent."""
    visible: tuple[Path, ...] = ()
    """Paths in hidden folders that the agent can read. They exist."""

    @property
    def can_leave_sandbox(self) -> bool:
        """Whether commands of the agent can run outside its own sandbox."""
        return self.sandbox is Sandbox.DANGER_FULL_ACCESS or self.approvals is Approvals.ACCEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a thread was given, and accepted."""

    entries: tuple[EntryId, ...]
    """The messages that the thread now holds, in order. A result may have moved behind its call."""
    items: int
    """Number of the agent's own items that carry them."""
    sha256: Digest | None
    """The digest of these items as canonical JSON. None if there are none."""
    omitted: tuple[Omission, ...] = ()
    """The messages that no agent can be given, in order."""
    unanswered: tuple[EntryId, ...] = ()
    """Calls whose result was not among the messages. A note that it was not recorded takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUse:
    """How full the agent's context window is, as the agent counts. None where it does not report a number."""

    window_tokens: int | None = None
    """Size of the window."""
    used_tokens: int | None = None
    """Tokens of the thread, with the agent's own prompt and tools."""
    fixed_prompt_tokens: int | None = None
    """Tokens of the agent's own prompt and tools, which no compaction removes."""
    compacts_at_tokens: int | None = None
    """Used tokens from which the agent shortens the history by itself."""


class Session(Protocol):
    """One thread of one agent.

    The supervisor never calls a method for which the runtime does not declare the capability. All methods except
    `turn` and `compact` return within a bounded time.
    """

    @property
    def thread(self) -> ThreadId | None:
        """The agent's name for the thread. None until the agent has reported it, in some cases in the first turn."""

    @property
    def facts(self) -> Mapping[str, Fact]:
        """Facts that the recorded frames do not contain. Read once, after the last turn and before the session ends."""

    @property
    def is_alive(self) -> bool:
        """Whether another turn can be started."""

    @property
    def last_heard_s(self) -> float:
        """Steady time of the agent's last output for this thread. The current time while Proctor owes it an answer."""

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        """Send a prompt, and return when the agent has ended the turn, successfully or not.

        Raises HangupError if the agent goes away first, DeadlineError if it does not take the prompt in time, and
        RefusedError if it refuses the prompt or a turn is running. May be cancelled at any time.
        """

    async def give(self, messages: Sequence[Message], *, instructions: str | None = None) -> Delivery:
        """Add messages, and then instructions, to the thread without a turn, for good, and return what was accepted.

        Writes a `HistoryOffer` before anything is sent, and a `HistoryReceipt` when the agent has answered.
        Instructions reach the model in the developer or system role, at the latest with the next prompt. What is given
        twice is there twice.

        Raises RefusedError if the agent refuses, if a turn is running, or if the session was opened without
        `expects_instructions` and must have been; nothing was given then. Raises HangupError if the agent goes away,
        and DeadlineError if it does not answer in time; it is then unknown what the thread holds beyond the receipts.
        """

    async def steer(self, text: str) -> None:
        """Add text to the running turn. Raises RefusedError if no turn runs or the agent does not take it."""

    async def compact(self) -> None:
        """Have the agent shorten its history, and return when it has. Raises the same errors as `turn`."""

    async def interrupt(self) -> None:
        """Ask the agent to end the running turn, and wait a bounded time for its end. Does nothing if no turn runs.

        Called when a clock fires or the attempt is cancelled, and after every turn.
        """

    async def settle(self) -> None:
        """End the commands that the turn left running. Called after every turn, however it ended."""

    async def read_history(self) -> None:
        """Read what the agent has stored of the thread, and record it. Raises RefusedError if it stored nothing."""

    async def read_context(self) -> ContextUse:
        """Return how full the context window is, as the agent reported it last. Called only between turns.

        May ask the agent. Raises RefusedError, HangupError or DeadlineError if that fails.
        """


@runtime_checkable
class TakesReferences(Protocol):
    """The part of a session whose agent takes documents beside a prompt, with less authority than the prompt."""

    def refer(self, references: Mapping[str, str]) -> None:
        """Give these texts, by key, beside the next prompt. The thread holds them from then on.

        A text that the thread was given under the same key before is not given again, even if a compaction has removed
        it since.
        """


class Host(Protocol):
    """One running agent process that carries sessions, or the shared part of sessions that each start a process."""

    @property
    def is_alive(self) -> bool:
        """Whether another session may be opened: the process runs and answers."""

    @property
    def facts(self) -> Mapping[str, Fact]:
        """What is known of the program: `identity`, `version`, `capability`, `transport`, `containment` and others."""

    @property
    def frames_in(self) -> int:
        """Lines read from the agent for all sessions. Must be counted independently of any tap."""

    def open_session(self, request: SessionRequest, tap: Tap) -> AbstractAsyncContextManager[Session]:
        """Open a session, and end its turn and give its thread back on exit, even if it is cancelled.

        Entering raises RefusedError if the agent refuses, and HangupError or DeadlineError if it goes away or does not
        answer. Record all frames of the session through `tap`.
        """


class Confinement(StrEnum):
    """What keeps an agent from writing outside its own folders: workspace, home and TMPDIR.

    A runtime that declares one also starts every process of its agent inside `agent_fences` or `HostRequest.hiding`.
    """

    FENCES = "fences"
    """Proctor's fences around the whole program (`agent_fences`)."""
    SANDBOX = "sandbox"
    """The program's own sandbox around the commands that it runs."""


@runtime_checkable
class LimitsPrompts(Protocol):
    """A runtime whose prompts cannot be of any length."""

    def prompt_bytes(self, options: Mapping[str, Any]) -> int | None:
        """Return the length of the longest prompt, in bytes, with these options. None if there is no limit."""


class Runtime(Protocol):
    """One way to drive one agent program. An entry point in the group `proctor.runtimes` names such an object.

    Only `locate`, `open_host` and the sessions may touch the machine. A runtime may also have an attribute `samples`
    (`proctor.runtime.samples.Samples`) for the conformance suite, an attribute `confinement` (`Confinement`) if
    something confines its agents, an attribute `home_indexes` (a tuple of patterns, as for fnmatch) with the names of
    files that the agent writes into its home and makes again if they are missing, and the methods of `ExaminesProgram`
    and `FindsThreads`. Those files are left out of a copy of the home, where their paths would lead back to the
    original.

    For context engines, it may have an attribute `forgets_turns` (True if a turn knows nothing but its prompt, which
    then has the whole context as text), an attribute `reference_bytes` with the length of the longest document that
    its sessions take beside a prompt; they are then `TakesReferences`; and the method of `LimitsPrompts`.
    """

    @property
    def id(self) -> RuntimeId:
        """The name of the entry point, and the name that a flow's `runtime` uses."""

    @property
    def capabilities(self) -> Capabilities:
        """What the runtime declares that it can do. The conformance suite proves it."""

    @property
    def profile(self) -> CapabilityProfile:
        """The highest profile whose capabilities it declares."""

    @property
    def serves(self) -> Mapping[str, tuple[str, ...]] | None:
        """Patterns (fnmatch) of the model names that it declares, by provider. None means that it takes any model."""

    @property
    def transports(self) -> tuple[str, ...]:
        """The values of the option `transport`. The first is the default."""

    @property
    def protocol_words(self) -> frozenset[str]:
        """The method names, field names and constants in the agent's frames.

        Masking a part of such a word would change what a frame means. So a value that is part of one is not taken for
        a secret, and is refused where a spec declares it as one.
        """

    @property
    def private_paths(self) -> frozenset[tuple[str, ...]]:
        """Paths to account data in the agent's frames. The values there are always masked."""

    @property
    def failures(self) -> tuple[Failure, ...]:
        """How the agent reports errors: the runtime's rows of the failure table, in order of precedence."""

    @property
    def option_names(self) -> frozenset[str]:
        """The keys that a flow may set under `options.<id>`."""

    @property
    def account(self) -> Account | None:
        """Where the program keeps its user's login. None if it has no login."""

    @property
    def reserved_variables(self) -> frozenset[str]:
        """Environment variables that the runtime sets itself. A flow that sets one of them is refused."""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise InputError if an option has a value that the runtime cannot use. All keys are in `option_names`."""

    def locate(self, options: Mapping[str, Any]) -> Executable | None:
        """Find the program. Return None if the runtime has none.

        Raises MachineError if the program is missing or too old. Commands that list programs pass no options.
        """

    def normalizer(self) -> Normalizer:
        """Return a new normalizer for one attempt."""

    def open_host(self, request: HostRequest, tap: Tap) -> AbstractAsyncContextManager[Host]:
        """Start a host, and end all of its processes on exit, even if it is cancelled.

        Entering raises MachineError if the program cannot be used, and PeerError if it does not answer as expected.
        Record frames that belong to no session through `tap`.
        """


@runtime_checkable
class ExaminesProgram(Protocol):
    """The part of a runtime that runs its program before a campaign, to find out whether it can be used."""

    async def examine(self, request: HostRequest) -> Executable:
        """Return the program that really runs, which a launcher may have started, with its version if it is known.

        Runs the program only for what it prints about itself, and caches that under `Executable.cache_key`. Raises
        MachineError if the program is too old or incompatible. `request` has its own home and temporary folder.
        """


@runtime_checkable
class FindsThreads(Protocol):
    """The part of a runtime that finds stored threads without running its program."""

    def has_thread(self, thread: ThreadId, *, home: Path, user_home: Path | None = None) -> bool:
        """Return whether the agent has stored a thread.

        `home` is the `home` of a host. `user_home` is the user's own home of the program if the flow uses it instead.
        """
