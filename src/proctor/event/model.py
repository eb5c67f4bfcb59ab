"""What happened, in our own words. Left of this module native speech becomes events; right of it events are read."""

from enum import StrEnum
from typing import Any, Literal

import msgspec

from proctor.event.kept import KeptItem
from proctor.fact import Fact
from proctor.ids import CallId, ItemId, ThreadId, TurnId


class Happened(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True, gc=False
):
    """Root of all events; none can hold itself. `frame` is the recorded row it comes from, `at_ms` its wall time."""

    frame: int
    at_ms: int


# ── the session ──


class SessionBegan(Happened, tag="session.began", frozen=True, kw_only=True):
    """The agent opened a thread for us, or took up one that it had kept."""

    thread: ThreadId
    model: str | None = None
    cwd: str | None = None
    ephemeral: bool | None = None
    is_resumed: bool = False


class StatusChanged(Happened, tag="status.changed", frozen=True, kw_only=True):
    """What the agent says of the thread. Process liveness and lane state are other facts.

    In words of `event.status.ThreadStatus`; one that is none of them is kept, and tells nothing.
    """

    status: str
    flags: tuple[str, ...] = ()
    channel: str | None = None


class ModelRerouted(Happened, tag="model.rerouted", frozen=True, kw_only=True):
    """Another model answers than the one that was asked."""

    to: str


class StreamEnded(Happened, tag="stream.ended", frozen=True, kw_only=True):
    """The channel closed: nothing more can arrive."""

    cause: str


class ProcessExited(Happened, tag="process.exited", frozen=True, kw_only=True):
    """The agent's process ended. Where each turn has a process of its own, only that turn ends with it."""

    code: int | None
    signal: int | None = None
    is_turns_own: bool = False


# ── a turn ──


class TurnAsked(Happened, tag="turn.asked", frozen=True, kw_only=True):
    """In a conversation: the caller wants another turn. What came of earlier ones counts no more."""

    text: str | None = None


class PromptSent(Happened, tag="prompt.sent", frozen=True, kw_only=True):
    """We asked."""

    text: str


class TurnBegan(Happened, tag="turn.began", frozen=True, kw_only=True):
    turn: TurnId


class TurnEnded(Happened, tag="turn.ended", frozen=True, kw_only=True):
    """The native end of a turn: a stop reason, never a verdict. `code` is a row of errors.CODES, where it failed.

    `retry_after_ms` is how long to wait before another try, where somebody said so.
    """

    turn: TurnId
    status: Literal["completed", "failed", "interrupted"]
    error: str | None = None
    error_class: str | None = None
    code: str | None = None
    retry_after_ms: int | None = None


class TextStreamed(Happened, tag="text.streamed", frozen=True, kw_only=True):
    """A piece of something the agent is saying."""

    turn: TurnId
    item: ItemId
    text: str


class TextSaid(Happened, tag="text.said", frozen=True, kw_only=True):
    """A whole message."""

    turn: TurnId
    item: ItemId
    text: str
    phase: str | None = None


class ReasoningStreamed(Happened, tag="reasoning.streamed", frozen=True, kw_only=True):
    turn: TurnId
    item: ItemId
    text: str


class ReasoningSaid(Happened, tag="reasoning.said", frozen=True, kw_only=True):
    turn: TurnId
    item: ItemId
    text: str


# ── tools ──

ToolKind = Literal["command", "patch", "mcp", "web", "dynamic", "other"]


class ToolBegan(Happened, tag="tool.began", frozen=True, kw_only=True):
    """A real tool call started."""

    turn: TurnId
    call: CallId
    kind: ToolKind
    name: str
    input: Any = None


class ToolStreamed(Happened, tag="tool.streamed", frozen=True, kw_only=True):
    """A piece of a running call's output."""

    turn: TurnId
    call: CallId
    text: str


class ToolEnded(Happened, tag="tool.ended", frozen=True, kw_only=True):
    """That call finished. A second record, never an edit of the first."""

    turn: TurnId
    call: CallId
    kind: ToolKind
    name: str
    ok: bool
    status: str
    input: Any = None
    exit_code: int | None = None
    output: str | None = None
    duration_ms: int | None = None


# ── questions the agent asks ──


class ApprovalAsked(Happened, tag="approval.asked", frozen=True, kw_only=True):
    request: str
    about: str
    call: CallId | None = None
    detail: str | None = None


class ApprovalResolved(Happened, tag="approval.resolved", frozen=True, kw_only=True):
    """Who answered, and what."""

    request: str
    decision: str
    by: str


# ── what it cost, what it warned of ──


class Tokens(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Cached is a part of input, reasoning a part of output."""

    input: int
    output: int
    total: int
    cached_input: int | None = None
    reasoning_output: int | None = None


class UsageAuthority(StrEnum):
    """Whose word a count of tokens is, the strongest last."""

    NONE = "none"
    ESTIMATED = "estimated"
    TRANSCRIPT_PARSED = "transcript-parsed"
    RESTORED_ON_RESUME = "restored-on-resume"
    LIVE_THREAD_USAGE = "live-thread-usage"
    LIVE_TURN_COMPLETED = "live-turn-completed"
    ROLLOUT_RECORD = "rollout-record"
    PROVIDER_RESPONSE = "provider-response"


UsageScope = Literal["call", "turn", "thread"]
UsageBasis = Literal["absolute", "cumulative", "delta"]


class UsageReported(Happened, tag="usage.reported", frozen=True, kw_only=True):
    """Tokens, and what they speak of. No `turn` is the one that runs, or none: then it is where a thread stood before.

    `cumulative` is all of its thread so far, so that a turn's is a difference; `delta` is to be added to what there is.
    """

    tokens: Tokens
    scope: UsageScope
    basis: UsageBasis
    authority: UsageAuthority
    turn: TurnId | None = None


WarningSource = Literal[
    "process", "thread", "config", "history", "provider", "protocol", "mcp", "deprecation", "callback", "hook"
]


class WarningRaised(Happened, tag="warning.raised", frozen=True, kw_only=True):
    """Whose it is follows from the channel it came by; where a rule of ours read that from its text, it is inferred."""

    source: WarningSource
    text: str
    channel: str
    rule: str | None = None

    @property
    def is_inferred(self) -> bool:
        return self.rule is not None


class ErrorReported(Happened, tag="error.reported", frozen=True, kw_only=True):
    """Not terminal: only TurnEnded, StreamEnded and ProcessExited end anything. `code` as in TurnEnded, if known.

    `retry_after_ms` is how long it was told to wait, or waits by itself before it tries again.
    """

    text: str
    error_class: str | None = None
    will_retry: bool | None = None
    code: str | None = None
    retry_after_ms: int | None = None


# ── what the supervisor saw or decided ──


class ClockFired(Happened, tag="clock.fired", frozen=True, kw_only=True):
    """Those of the mission and the campaign stand at what was left of them when the attempt began."""

    clock: Literal["stall", "turn", "attempt", "mission", "campaign"]
    limit_ms: int


class LimitReached(Happened, tag="limit.reached", frozen=True, kw_only=True):
    """The agent has used more than it may."""

    limit: Literal["tokens"]
    most: int
    used: int


class Cancelled(Happened, tag="cancelled", frozen=True, kw_only=True):
    why: str


class SessionRefused(Happened, tag="session.refused", frozen=True, kw_only=True):
    """The session could not be had: a code of errors.CODES."""

    code: str
    detail: str


# ── what became known ──


class FactsStated(Happened, tag="facts.stated", frozen=True, kw_only=True):
    """Statements with their authority; `event.facts` settles which of them holds."""

    facts: dict[str, Fact]


class HistoryRead(Happened, tag="history.read", frozen=True, kw_only=True):
    """What the agent itself keeps of the thread, or the next part of it; `source` says where it was read."""

    source: str
    items: tuple[KeptItem, ...]
    is_last: bool = True


class ResultFound(Happened, tag="result.found", frozen=True, kw_only=True):
    """What the agent handed in as its result otherwise than by its words: a claim. `code` is said of one that is none.

    `source` says how: a file, or a command of ours that it called while it ran.
    """

    source: str
    done: bool | None = None
    answer: str | None = None
    result: Any = None
    code: str | None = None
    problem: str | None = None


class NoteMade(Happened, tag="note.made", frozen=True, kw_only=True):
    """Something that the agent wanted on record while it ran."""

    text: str


class HookRan(Happened, tag="hook.ran", frozen=True, kw_only=True):
    """A command of the operator's own ended well, before or after the agent was asked. One that failed is a warning."""

    phase: Literal["before", "after"]
    text: str


# ── the rest, so that counts add up ──


class Replied(Happened, tag="replied", frozen=True, kw_only=True):
    """The reply to a request of ours; `error` when it was refused."""

    method: str
    error: str | None = None


class Asked(Happened, tag="asked", frozen=True, kw_only=True):
    """A request or notification of ours that is no prompt."""

    method: str


class Noted(Happened, tag="noted", frozen=True, kw_only=True):
    """A frame we know and draw nothing from."""

    native: str


class Unrecognized(Happened, tag="unrecognized", frozen=True, kw_only=True):
    """A frame we do not know. Kept, counted, never dropped."""

    native: str


Event = (
    SessionBegan
    | StatusChanged
    | ModelRerouted
    | StreamEnded
    | ProcessExited
    | TurnAsked
    | PromptSent
    | TurnBegan
    | TurnEnded
    | TextStreamed
    | TextSaid
    | ReasoningStreamed
    | ReasoningSaid
    | ToolBegan
    | ToolStreamed
    | ToolEnded
    | ApprovalAsked
    | ApprovalResolved
    | UsageReported
    | WarningRaised
    | ErrorReported
    | ClockFired
    | LimitReached
    | Cancelled
    | SessionRefused
    | FactsStated
    | HistoryRead
    | ResultFound
    | NoteMade
    | HookRan
    | Replied
    | Asked
    | Noted
    | Unrecognized
)
