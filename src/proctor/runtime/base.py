"""The contract between the supervisor and a way to drive one agent program."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import msgspec

from proctor.clock import Clock
from proctor.contain.intent import IntentBook
from proctor.contain.ladder import Containment
from proctor.event.model import Event
from proctor.event.row import Dir, Row, Seen
from proctor.evidence.redact import TextStream
from proctor.fact import Fact
from proctor.ids import AttemptId, CallId, ProcessId, StrategyId, ThreadId
from proctor.runtime.capability import Capability, Claims
from proctor.runtime.credential import Account
from proctor.runtime.failures import Failure
from proctor.spec.model import Approvals, Contain, Login, Profile, Sandbox
from proctor.transport.channel import Channel


class Executable(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The program itself: which file, which bytes, which version, and how it was found.

    `shims` are the links that lead from the path to the real file; `package` is what it was installed with, and
    `package_version` that package's version, where it should be the program's own.
    """

    path: str
    real_path: str
    sha256: str
    size_bytes: int
    source: str
    version: str | None = None
    locked_sha256: str | None = None
    shims: tuple[str, ...] = ()
    package: str | None = None
    package_version: str | None = None

    @property
    def is_locked(self) -> bool | None:
        """Whether it is the file its wheel's RECORD names; None where there is no record."""
        return None if self.locked_sha256 is None else self.locked_sha256 == self.sha256


class Tap(Protocol):
    """Where a connection puts what it hears and says, before anyone acts on it."""

    def stage(self, dir_: Dir, data: bytes, *, stream: TextStream | None = None) -> None:
        """Hold one line until the next commit."""

    def commit(self) -> None:
        """Write what is held, then interpret it."""

    def say(self, seen: Seen) -> None:
        """Put on record what we saw or decided."""

    def release(self, key_prefix: str) -> None:
        """These text streams have ended: give out what redaction holds back of them."""


class Normalizer(Protocol):
    """Recorded rows in, events out: pure, so that another process at another time gets the same."""

    def feed(self, row: Row) -> Iterable[Event]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAsk:
    """Which model a session talks to. `key_variable` names the variable that holds the credential, if one does."""

    provider: str
    name: str
    base_url: str | None = None
    key_variable: str | None = None
    login: Login = Login.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAsk:
    """What one runtime process needs to start; of a program that runs once a session, what all its sessions need.

    `user_home` is the user's own home of the agent's program: it holds the login that is inherited, and stands in for
    `home` where the profile is the user's own.
    """

    process: ProcessId
    executable: Executable | None
    home: Path
    tmp: Path
    env: Mapping[str, str]
    containment: Containment
    intents: IntentBook
    clock: Clock
    model: ModelAsk
    between: Callable[[Channel], Channel] | None = None  # what stands between the process and us, such as a fault
    profile: Profile = Profile.FRESH
    user_home: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def program(self) -> Executable:
        """For a runtime that has one."""
        assert self.executable is not None, "a runtime that located a program was given none"
        return self.executable


class Decision(StrEnum):
    """What whoever is asked can say."""

    ACCEPT = "accept"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of the agent's, in our words. `request` is its id on record, `native` the whole of what it said."""

    request: str
    about: str
    command: str | None = None
    cwd: str | None = None
    paths: tuple[str, ...] = ()
    reason: str | None = None
    call: CallId | None = None
    native: Mapping[str, Any] = field(default_factory=dict)


Decide = Callable[[Question], Awaitable[Decision]]
"""Asked for each question where the policy is `ask`. It may take its time: the agent's clocks stand meanwhile."""

CallTool = Callable[[Any], Awaitable[str]]
"""Runs a tool that we offer, with the arguments the agent gave. What it raises is told to the agent as a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool of ours that the agent may call. `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]
    call: CallTool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAsk:
    """What one attempt wants of a runtime process.

    `resume` continues a thread that was persistent, `fork` begins another one with its history; at most one of them.
    An agent without a sandbox of its own is fenced in, unless `contain` says otherwise, and then does not see `hidden`.
    """

    attempt: AttemptId
    workspace: Path
    tmp: Path
    sandbox: Sandbox
    approvals: Approvals
    model: ModelAsk
    profile: Profile = Profile.FRESH
    options: Mapping[str, Any] = field(default_factory=dict)
    decide: Decide | None = None
    decide_deadline_s: float = 120.0
    tools: tuple[Tool, ...] = ()
    tool_deadline_s: float = 120.0
    thinking: Callable[[], AbstractContextManager[None]] = nullcontext  # entered while one of these is waited for
    is_persistent: bool = False
    resume: ThreadId | None = None
    fork: ThreadId | None = None
    contain: Contain = Contain.FENCED
    hidden: tuple[Path, ...] = ()


class Session(Protocol):
    """Owns one thread of one agent. What its runtime does not claim is never asked of it."""

    @property
    def session_id(self) -> str: ...

    @property
    def thread(self) -> ThreadId | None:
        """None until the agent has named it, which some do with their first turn."""

    @property
    def facts(self) -> Mapping[str, Fact]:
        """What is known of it by now beside what stands in its frames; read once, when its last turn is over."""

    @property
    def is_alive(self) -> bool:
        """Whether another turn can be asked of it."""

    @property
    def last_heard_s(self) -> float:
        """Steady time of the agent's last frame for this thread; now, while it waits for an answer of ours."""

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        """Ask, and wait until the agent ends the turn. HangupError when it goes away instead."""

    async def steer(self, text: str) -> None:
        """Say something into the running turn. RefusedError where none runs or the agent cannot."""

    async def compact(self) -> None:
        """Have the agent shorten its history, and wait until it has."""

    async def interrupt(self) -> None:
        """Ask the agent to end the running turn; bounded, and no error where none runs."""

    async def settle(self) -> None:
        """End what the turn left running; bounded. Called after every turn, however it ended."""

    async def read_history(self) -> None:
        """Put on record what the agent itself keeps of the thread, read anew. RefusedError where it keeps nothing."""


class Host(Protocol):
    """One running agent process, which carries sessions; or none yet, where each session has its own."""

    @property
    def is_alive(self) -> bool:
        """Whether another session may be opened on it: it runs, and it answers."""

    @property
    def facts(self) -> Mapping[str, Fact]: ...

    @property
    def frames_in(self) -> int:
        """Lines read from the agent for all its sessions, counted apart from any recording."""

    def open_session(self, ask: SessionAsk, tap: Tap) -> AbstractAsyncContextManager[Session]: ...


class Runtime(Protocol):
    """A way to drive one agent program; its id is a strategy."""

    @property
    def id(self) -> StrategyId: ...

    @property
    def claims(self) -> Claims: ...

    @property
    def capability(self) -> Capability:
        """The profile that its claims come to."""

    @property
    def serves(self) -> Mapping[str, tuple[str, ...]] | None:
        """Patterns of model names by provider, as it claims them; None where it takes whatever it is given."""

    @property
    def transports(self) -> tuple[str, ...]:
        """The ways to talk to it. The first is meant where a flow's option `transport` names none."""

    @property
    def words(self) -> frozenset[str]:
        """What its frames are made of. No secret may be a part of one: masked, it would change what a frame means."""

    @property
    def private(self) -> frozenset[tuple[str, ...]]:
        """The paths in its frames to account data, which is masked whatever it is."""

    @property
    def failures(self) -> tuple[Failure, ...]:
        """How its agent tells of what goes wrong: its rows of the failure table."""

    @property
    def option_names(self) -> frozenset[str]:
        """What a flow may say under `options.<id>`."""

    @property
    def account(self) -> Account | None:
        """The login that its user may have to the program; None where there is no such thing."""

    @property
    def reserved_variables(self) -> frozenset[str]:
        """Variables this runtime sets itself, which a flow's `env` may therefore not."""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """InputError where a flow asks by them for what there is not; their names are known already."""

    def locate(self, options: Mapping[str, Any]) -> Executable | None:
        """The program to run, None where there is none. MachineError where it is missing or too old."""

    def normalizer(self) -> Normalizer: ...

    def open_host(self, ask: HostAsk, tap: Tap) -> AbstractAsyncContextManager[Host]: ...
