"""The turns of a session, as they are stored and shown."""

from enum import StrEnum
from typing import Literal

import msgspec

from proctor.event.message import Message
from proctor.event.outcome import Ending, Outcome
from proctor.event.row import CommitGuarantee, CommitStatus, ContextForm, FailurePolicy, RatioSource, ThreadChoice
from proctor.evidence.artifacts import Artifact, Part
from proctor.ids import AttemptId, Digest, EntryId, ProcessId, RunId, RuntimeId, SessionKey, ThreadId, TurnId
from proctor.spec.choices import Profile
from proctor.spec.context_settings import ContextSettings

TurnKind = Literal["prompt", "compaction", "import"]

SettingName = Literal["runtime", "workspace", "model", "login", "sandbox", "approvals", "profile", "engine"]


class TurnState(StrEnum):
    """How far a turn of a session has come."""

    ADMITTED = "admitted"
    """It was requested. Whether the agent completed it is not known yet."""

    ACCEPTED = "accepted"
    """The agent completed it, and its entries are in the mirror."""

    READY = "ready"
    """The context engine was given it, and has not confirmed it yet."""

    ACKNOWLEDGED = "acknowledged"
    """The context engine has it."""

    BLOCKED = "blocked"
    """The context engine failed to take it in three times, or was replaced. It is not given to an engine again."""

    DISCARDED = "discarded"
    """It did not complete, so the mirror has no entries of it. The record of the sitting still shows what happened."""

    @property
    def is_completed(self) -> bool:
        """Whether the agent completed the turn."""
        return self not in (TurnState.ADMITTED, TurnState.DISCARDED)


class TurnContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a context engine did for a turn."""

    engine: str
    """Id of the engine."""
    version: str
    """Its version."""
    commits: CommitGuarantee = "exactly-once"
    """How often a completed turn reaches the engine; `at-least-once` if it takes turns through an adapter."""
    policy: FailurePolicy
    """What follows if the engine fails."""
    mode: str
    """When the agent's thread is given the context."""
    thread: ThreadChoice
    """Whether the turn continued a native thread or started one."""
    reason: str
    """Why."""
    how: ContextForm
    """In which form the thread was given messages; `none` if it lacked none."""
    why_text: str | None = None
    """Why messages are given as text, although the runtime declares that it takes items. Null otherwise."""
    sha256: Digest | None = None
    """Digest of everything that the agent should be given, with the prompt."""
    addition_sha256: Digest | None = None
    """Digest of the instructions that the engine and the hooks add. Null if they add none."""
    is_addition_given: bool = False
    """Whether the thread accepted them in this turn. If not, it has them already, or `degraded` says why not."""
    assembled: int = 0
    """Number of messages that the engine assembled."""
    given: int = 0
    """Number of messages that the thread was given and accepted."""
    dropped: int = 0
    """Number of messages and references that were left out."""
    placeholders: int = 0
    """Number of masked secrets in what was given."""
    estimated_tokens: int | None = None
    """Estimated tokens of the assembled messages. Null if none were assembled."""
    bytes_per_token: float | None = None
    """The ratio of that estimate."""
    ratio_source: RatioSource | None = None
    """Whether that ratio was measured or is assumed. Null without an estimate."""
    commit: CommitStatus = "none"
    """Whether the engine has the turn."""
    commit_detail: str | None = None
    """Why the engine does not have it. Null if it has, or was not asked yet."""
    degraded: str | None = None
    """Why the engine did not apply to the turn, or not in full. Null if it did."""

    @property
    def addition_words(self) -> str | None:
        """What is known of the instructions, in words. None if there are none, or the thread did not get them."""
        if self.is_addition_given:
            return "instructions given"
        return "instructions as before" if self.addition_sha256 is not None and self.degraded is None else None


class RecordedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What the record of a sitting shows of one turn."""

    id: EntryId
    """Position of the request in the record. It is also the id of the prompt's entry."""
    kind: TurnKind
    """`prompt`; `compaction`, a request to shorten the history; `import`, entries of a thread that existed before."""
    asked_at_ms: int
    """Wall-clock time of the request, in milliseconds since the epoch."""
    ending: Ending
    """How the turn ended."""
    messages: tuple[Message, ...]
    """The entries of the turn, in the order of the record."""
    thread: ThreadId | None
    """The agent's thread, if it is known by the end of the turn."""
    context: TurnContext | None = None
    """What a context engine did for the turn. None if the session has none."""

    @property
    def state(self) -> TurnState:
        is_completed = self.kind == "import" or self.ending.outcome is Outcome.COMPLETED
        return TurnState.ACCEPTED if is_completed else TurnState.DISCARDED


class SessionTurn(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One turn of a session."""

    n: int
    """Number of the turn in the session, from 1."""
    id: EntryId
    """Position of the request in the record, `<run>/<attempt>#<frame>`."""
    sitting: int
    """Number of the sitting in which the turn was taken."""
    runtime_id: RuntimeId
    """Id of the runtime that took the turn."""
    kind: TurnKind
    """`prompt`; `compaction`, a request to shorten the history; `import`, entries of a thread that existed before."""
    state: TurnState
    """How far the turn has come."""
    asked_at_ms: int
    """Wall-clock time of the request, in milliseconds since the epoch."""
    outcome: Outcome | None
    """How the turn ended. Null while that is not known."""
    code: str | None
    """Error code, if the turn did not complete."""
    detail: str | None
    """What happened, in a sentence, if the turn did not complete."""
    entries: int
    """Number of its entries in the mirror. 0 for a turn that did not complete."""
    context: TurnContext | None = None
    """What a context engine did for the turn. Null if the session has none."""

    @property
    def is_degraded(self) -> bool:
        """Whether the turn completed, and its context engine did not apply to it, or not in full."""
        return self.state.is_completed and self.context is not None and self.context.degraded is not None

    @property
    def is_uncommitted(self) -> bool:
        """Whether the turn completed, and its context engine does not have it."""
        return self.context is not None and self.state in (TurnState.ACCEPTED, TurnState.READY, TurnState.BLOCKED)


class SittingState(StrEnum):
    """Whether a sitting is over."""

    OPEN = "open"
    """It runs, or the process that held it was killed."""

    CLOSED = "closed"
    """It is over, and its turns are settled."""


class Sitting(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One use of a session, from opening to closing it."""

    n: int
    """Number of the sitting in the session, from 1."""
    run_id: RunId
    """Id of the run that holds its evidence."""
    attempt_id: AttemptId
    """Id of the attempt."""
    runtime_id: RuntimeId
    """Id of the runtime."""
    began_at_ms: int
    """Wall-clock time when it was opened, in milliseconds since the epoch."""
    state: SittingState
    """Whether it is over."""
    is_import: bool = False
    """Whether it imported the history of a thread that existed before the session."""
    tools: str = ""
    """Digest of the tools that the agent was offered."""
    process: ProcessId | None = None
    """The agent process of a pool that carried it. Null if the session keeps the agent's home."""
    is_ephemeral: bool = False
    """Whether its native thread was not kept."""
    is_foreign: bool = False
    """Whether it was taken over from the session that this one was forked from."""


class Binding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The native thread of a session, and what it holds."""

    runtime_id: RuntimeId
    """Id of the runtime that has the thread."""
    thread: ThreadId
    """The agent's id of the thread."""
    tools: str
    """Digest of the tools that the thread was started with."""
    process: ProcessId | None = None
    """The agent process of a pool, without which the thread is lost. Null if the session keeps the agent's home."""
    last_turn: TurnId | None = None
    """The agent's id of the last turn in the thread. Null before the first."""
    is_fork: bool = False
    """Whether the next sitting starts another thread with the history of this one, up to `last_turn`."""
    engine: str | None = None
    """Id of the context engine of the last turn. Null if there was none."""
    policy_sha256: Digest | None = None
    """Digest of the engine's version and of the settings that shape the context."""
    mode: str | None = None
    """When the thread is given the context."""
    epoch: str | None = None
    """Identifier of the stable part of the context that the thread was given."""
    addition: Digest | None = None
    """Digest of the engine's instructions that are in force in the thread. Null for none."""
    first_addition: Digest | None = None
    """Digest of the engine's instructions that the thread began with. A compaction of the agent keeps only these."""
    uncommitted: tuple[EntryId, ...] = ()
    """Prompts in the thread whose turn did not complete. They are in no history."""
    is_unknown: bool = False
    """Whether it is unknown what the thread holds: Proctor was killed before the end of a turn or of a giving."""
    is_compacting: bool = False
    """Whether the agent was asked to shorten the thread and its answer is not known yet: nothing counts as held."""
    is_compacted: bool = False
    """Whether the agent has shortened the thread."""


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How the last sitting of a session was opened, for commands that open the next one. It has no secrets."""

    runtime: str
    """Id of the runtime."""
    workspace: str | None = None
    """The agent's working folder. Null for a folder that the session keeps."""
    provider: str | None = None
    """The model's provider. Null for the scripted model."""
    model: str | None = None
    """The model's name."""
    base_url: str | None = None
    """The provider's address. Null for its default."""
    login: str | None = None
    """How the agent authenticates."""
    sandbox: str = "workspace-write"
    """What the agent's own sandbox allows it to write."""
    approvals: str = "deny"
    """How questions of the agent are answered."""
    profile: str = "fresh"
    """`mine` if the agent uses its user's own settings."""
    script: str | None = None
    """The script that the scripted model plays."""
    context: ContextSettings | None = None
    """The context engine. Null for the default."""

    @property
    def is_users_home(self) -> bool:
        """Whether the agent kept the thread in its user's own home."""
        return self.profile == Profile.MINE


class Ancestor(Part, frozen=True, kw_only=True):
    """A session that another one was forked from."""

    session: SessionKey
    """Id of the session."""
    turns: int
    """Number of turns that it had then."""


class SessionHeader(Artifact, frozen=True, kw_only=True):
    """session.json: what a session is from its creation on."""

    id: SessionKey
    """Id of the session."""
    created_at_ms: int
    """Wall-clock time when it was created, in milliseconds since the epoch."""
    home: str
    """Name of the folder, among those of the user's sessions, with its agents' homes and its workspace."""
    ancestors: tuple[Ancestor, ...] = ()
    """The session that it was forked from, last, after those from which that one was forked."""

    @property
    def forked_from(self) -> SessionKey | None:
        return self.ancestors[-1].session if self.ancestors else None


class SessionSetup(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What changes in a session, apart from its turns and its thread."""

    history_after: int = 0
    """Number of the last turn before the last reset. The turns after it are the session's history."""
    settings: SessionSettings | None = None
    """How the last sitting was opened."""
    lost: tuple[SettingName, ...] = ()
    """Settings that were lost when the store was rebuilt. The next opening must name them."""
