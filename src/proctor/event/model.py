"""The events: what happened in an attempt, in one vocabulary for all runtimes. Normalizers produce them from frames."""

from enum import StrEnum
from typing import Any, Literal

import msgspec

from proctor.event.history_item import HistoryItem
from proctor.event.history_item import ToolKind as ToolKind
from proctor.event.row import (
    CommitGuarantee,
    CommitSource,
    CommitStatus,
    ContextForm,
    FailurePolicy,
    HistoryForm,
    Operator,
    RatioSource,
    ThreadChoice,
)
from proctor.fact import Fact
from proctor.ids import CallId, Digest, EntryId, ItemId, ThreadId, TurnId


class EventRoot(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True, gc=False
):
    """Base class of all events."""

    frame: int
    """Number of the row of frames.jsonl that the event comes from."""

    at_ms: int
    """Wall-clock time of that row, in milliseconds since the epoch."""


# ── the session ──


class SessionBegan(EventRoot, tag="session.began", frozen=True, kw_only=True):
    """The agent opened a thread, or resumed a stored one."""

    thread: ThreadId
    """The agent's id of the thread."""

    model: str | None = None
    """The model that the agent says it uses; None if it does not say."""

    cwd: str | None = None
    """The agent's working folder; None if it does not say."""

    ephemeral: bool | None = None
    """True if the agent does not store the thread; None if it does not say."""

    is_resumed: bool = False
    """Whether the thread existed before this session."""


class StatusChanged(EventRoot, tag="status.changed", frozen=True, kw_only=True):
    """The agent reported the status of its thread. It says nothing about the process or the runtime."""

    status: str
    """A value of `event.status.ThreadStatus`. Any other word is kept, but sets no fact."""

    flags: tuple[str, ...] = ()
    """Additional words that the agent gave with the status."""

    channel: str | None = None
    """The native message that carried the status; None if unknown."""


class ModelRerouted(EventRoot, tag="model.rerouted", frozen=True, kw_only=True):
    """Another model answers than the one requested."""

    to: str
    """The model that answers."""


class StreamEnded(EventRoot, tag="stream.ended", frozen=True, kw_only=True):
    """The channel to the agent closed, so nothing more can arrive."""

    cause: str
    """Why the channel closed, in a few words."""


class ProcessExited(EventRoot, tag="process.exited", frozen=True, kw_only=True):
    """The agent's process ended."""

    code: int | None
    """Exit status; None if a signal ended the process or the status is unknown."""

    signal: int | None = None
    """Number of the signal that ended the process; None if it exited by itself."""

    killer: Literal["agent", "kernel"] | None = None
    """Who sent the signal: `agent` if only its own commands could, `kernel` if memory ran out meanwhile; None if a
    signal did not end the process or the sender is unknown."""

    tight_limit: str | None = None
    """A limit of this machine that the process may have met, such as `RLIMIT_AS is 1000000 bytes`, if it ended with an
    error; None if it met no such limit."""

    is_turns_own: bool = False
    """Whether the process served only one turn, so that the session continues without it."""

    sessions: int = 1
    """How many sessions the process carried."""


# ── a turn ──


class TurnAsked(EventRoot, tag="turn.asked", frozen=True, kw_only=True):
    """The caller requested another turn of a conversation. The results of earlier turns no longer count."""

    text: str | None = None
    """The prompt; None if the request is to shorten the history."""


class TurnSettled(EventRoot, tag="turn.settled", frozen=True, kw_only=True):
    """A turn of a session with an id is over, with everything that the agent still did after its end."""


class TurnSteered(EventRoot, tag="turn.steered", frozen=True, kw_only=True):
    """The agent accepted a text that the caller sent into its running turn."""

    text: str
    """The text."""


class PromptSent(EventRoot, tag="prompt.sent", frozen=True, kw_only=True):
    """Proctor sent a prompt to the agent."""

    text: str
    """The prompt as it was sent."""


class TurnBegan(EventRoot, tag="turn.began", frozen=True, kw_only=True):
    """A turn began."""

    turn: TurnId
    """Id of the turn."""


class TurnEnded(EventRoot, tag="turn.ended", frozen=True, kw_only=True):
    """The agent ended a turn. The status is the agent's stop reason, not a verdict."""

    turn: TurnId
    """Id of the turn."""

    status: Literal["completed", "failed", "interrupted"]
    """How the turn ended."""

    error: str | None = None
    """The agent's error text, if the turn failed or was interrupted."""

    error_class: str | None = None
    """The agent's own class of the error, if it gave one."""

    code: str | None = None
    """Error code of a failed turn, a key of `errors.CODES`; None if unknown."""

    retry_after_ms: int | None = None
    """Time to wait before a retry, in milliseconds, if the agent or the provider named one."""


class TextStreamed(EventRoot, tag="text.streamed", frozen=True, kw_only=True):
    """A piece of a message that the agent is sending."""

    turn: TurnId
    """Id of the turn."""

    item: ItemId
    """Id of the message."""

    text: str
    """The piece of text."""


class TextSaid(EventRoot, tag="text.said", frozen=True, kw_only=True):
    """A complete message of the agent."""

    turn: TurnId
    """Id of the turn."""

    item: ItemId
    """Id of the message."""

    text: str
    """The whole text."""

    phase: str | None = None
    """The agent's own label of the message, such as `final_answer`; None if it has no label."""


class ReasoningStreamed(EventRoot, tag="reasoning.streamed", frozen=True, kw_only=True):
    """A piece of the agent's reasoning."""

    turn: TurnId
    """Id of the turn."""

    item: ItemId
    """Id of the reasoning item."""

    text: str
    """The piece of text."""


class ReasoningSaid(EventRoot, tag="reasoning.said", frozen=True, kw_only=True):
    """A complete reasoning item of the agent."""

    turn: TurnId
    """Id of the turn."""

    item: ItemId
    """Id of the reasoning item."""

    text: str
    """The whole text."""


# ── tools ──


class ToolBegan(EventRoot, tag="tool.began", frozen=True, kw_only=True):
    """A tool call started."""

    turn: TurnId
    """Id of the turn."""

    call: CallId
    """Id of the call."""

    kind: ToolKind
    """Kind of tool."""

    name: str
    """Name of the tool."""

    input: Any = None
    """The tool's input, as the agent gave it."""


class ToolStreamed(EventRoot, tag="tool.streamed", frozen=True, kw_only=True):
    """A piece of the output of a running tool call."""

    turn: TurnId
    """Id of the turn."""

    call: CallId
    """Id of the call."""

    text: str
    """The piece of output."""


class ToolEnded(EventRoot, tag="tool.ended", frozen=True, kw_only=True):
    """A tool call ended. This is a second event; `tool.began` is never edited."""

    turn: TurnId
    """Id of the turn."""

    call: CallId
    """Id of the call."""

    kind: ToolKind
    """Kind of tool."""

    name: str
    """Name of the tool."""

    ok: bool
    """Whether the call succeeded."""

    status: str
    """The agent's own word for how the call ended."""

    input: Any = None
    """The tool's input; None if it was only in `tool.began`."""

    exit_code: int | None = None
    """Exit status of a command; None if it did not run one or the status is unknown."""

    output: str | None = None
    """The tool's output; None if the agent did not report it."""

    duration_ms: int | None = None
    """Duration that the agent reported, in milliseconds; None if it did not."""


# ── approvals ──


class ApprovalAsked(EventRoot, tag="approval.asked", frozen=True, kw_only=True):
    """The agent asked for an approval."""

    request: str
    """Id of the request."""

    about: str
    """Kind of request, such as a command or a file change."""

    call: CallId | None = None
    """Id of the tool call that needs the approval; None if unknown."""

    detail: str | None = None
    """What exactly the agent wants to do; None if it does not say."""


class ApprovalResolved(EventRoot, tag="approval.resolved", frozen=True, kw_only=True):
    """A request for an approval was answered or withdrawn."""

    request: str
    """Id of the request."""

    decision: str
    """The answer."""

    by: str
    """Who or what decided; see `QuestionAnswered.by`."""


# ── compaction by the agent ──

CompactionTrigger = Literal["manual", "auto"]


class CompactionBegan(EventRoot, tag="compaction.began", frozen=True, kw_only=True):
    """The agent began to shorten the history of its thread, on request or because its context window fills up."""

    trigger: CompactionTrigger | None = None
    """`manual` if it was requested, `auto` if the agent decided; None if unknown."""


class CompactionEnded(EventRoot, tag="compaction.ended", frozen=True, kw_only=True):
    """The agent's compaction ended. If the agent goes away meanwhile, there is no such event.

    Unless `ok` is false, assume that the thread has lost everything but a summary and what `keeps` names.
    """

    trigger: CompactionTrigger | None = None
    """`manual` if it was requested, `auto` if the agent decided; None if unknown."""

    ok: bool | None = None
    """Whether the history was shortened; false if it failed or was interrupted; None if the agent does not say."""

    tokens_before: int | None = None
    """Tokens in the context before, as the agent counts; None if it does not say."""

    tokens_after: int | None = None
    """Tokens in the context after, as the agent counts, in some cases more than before; None if it does not say."""

    problem: str | None = None
    """Why it failed, in the agent's words; None if it did not fail, or the agent does not say."""

    keeps: Literal["user-messages", "nothing"]
    """What the agent is proven to keep verbatim: the newest messages of the user, or nothing but its own summary."""

    keeps_tokens: int | None = None
    """How much of the newest messages it keeps, in tokens of 4 bytes of UTF-8, rounded up for each message. A message
    that does not fit is cut. None if no limit is known."""

    keeps_frames: tuple[int, ...] = ()
    """Rows of this record whose messages the agent reports to keep verbatim, besides what `keeps` names."""

    keeps_given: bool = False
    """Whether the agent reports to keep verbatim some of the messages that it was given."""


# ── usage, warnings and errors ──


class Tokens(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Numbers of tokens."""

    input: int
    """Input tokens, including cached ones."""

    output: int
    """Output tokens, including reasoning."""

    total: int
    """Total tokens."""

    cached_input: int | None = None
    """The part of `input` that was read from a cache; None if unknown."""

    cache_write: int | None = None
    """The part of `input` that was written to a cache; None if unknown."""

    reasoning_output: int | None = None
    """The part of `output` that was reasoning; None if unknown."""


class UsageAuthority(StrEnum):
    """The source of numbers of tokens, from the weakest to the strongest."""

    NONE = "none"
    """Not reported."""

    ESTIMATED = "estimated"
    """An estimate."""

    TRANSCRIPT_PARSED = "transcript-parsed"
    """Read from the agent's stored transcript."""

    RESTORED_ON_RESUME = "restored-on-resume"
    """The thread's total that the agent reported when it resumed the thread; no turn of this session."""

    LIVE_THREAD_USAGE = "live-thread-usage"
    """The agent's running total of the thread."""

    LIVE_TURN_COMPLETED = "live-turn-completed"
    """The agent's numbers at the end of a turn."""

    ROLLOUT_RECORD = "rollout-record"
    """The agent's own record on disk."""

    PROVIDER_RESPONSE = "provider-response"
    """The provider's response, as the agent passed it on."""


UsageScope = Literal["call", "turn", "thread"]
UsageBasis = Literal["absolute", "cumulative", "delta"]


class UsageReported(EventRoot, tag="usage.reported", frozen=True, kw_only=True):
    """The agent or its provider reported numbers of tokens."""

    tokens: Tokens
    """The numbers."""

    scope: UsageScope
    """What they cover: one model call, one turn or the whole thread."""

    basis: UsageBasis
    """How to read them: `absolute` is the whole of its scope, `cumulative` the thread's total so far, `delta` is added
    to earlier reports."""

    authority: UsageAuthority
    """Source of the numbers."""

    turn: TurnId | None = None
    """Id of the turn; None for the running turn, or for the thread's state before the first turn."""


WarningSource = Literal[
    "process", "thread", "config", "history", "provider", "protocol", "mcp", "deprecation", "callback", "hook"
]


class WarningRaised(EventRoot, tag="warning.raised", frozen=True, kw_only=True):
    """The agent, its provider or Proctor raised a warning."""

    source: WarningSource
    """What the warning is about. It follows from the channel, or from `rule`."""

    text: str
    """Text of the warning."""

    channel: str
    """The native message or stream that carried it."""

    rule: str | None = None
    """The rule that inferred `source` from the text; None if the channel determines it."""

    code: str | None = None
    """Error code, a key of `errors.CODES`; None for a warning of the agent or its provider."""

    @property
    def is_inferred(self) -> bool:
        """Whether a rule inferred the source."""
        return self.rule is not None


class ErrorReported(EventRoot, tag="error.reported", frozen=True, kw_only=True):
    """The agent reported an error that ended nothing. Only `turn.ended`, `stream.ended` and `process.exited` end
    something."""

    text: str
    """Text of the error."""

    error_class: str | None = None
    """The agent's own class of the error, if it gave one."""

    will_retry: bool | None = None
    """Whether the agent says that it will try again; None if it does not say."""

    code: str | None = None
    """Error code, a key of `errors.CODES`; None if unknown."""

    retry_after_ms: int | None = None
    """Time that the agent waits, or was asked to wait, before it tries again, in milliseconds."""


# ── what the supervisor observed or decided ──


class ClockFired(EventRoot, tag="clock.fired", frozen=True, kw_only=True):
    """A time limit ran out."""

    clock: Literal["stall", "turn", "attempt", "mission", "campaign"]
    """Which limit."""

    limit_ms: int
    """The limit in milliseconds. For `mission` and `campaign`, what was left of it when the attempt began."""


class LimitReached(EventRoot, tag="limit.reached", frozen=True, kw_only=True):
    """The agent exceeded a limit other than time."""

    limit: Literal["tokens", "evidence"]
    """Which limit: tokens, or bytes of evidence."""

    most: int
    """The largest allowed value."""

    used: int
    """The value reached."""


class Cancelled(EventRoot, tag="cancelled", frozen=True, kw_only=True):
    """The attempt was cancelled."""

    why: str
    """The reason, in a few words."""

    by: Operator | None = None
    """Who cancelled this attempt alone; None if it was stopped with its whole campaign, session or pool."""


class SessionRefused(EventRoot, tag="session.refused", frozen=True, kw_only=True):
    """No session could be opened."""

    code: str
    """Error code, a key of `errors.CODES`."""

    detail: str
    """What is wrong."""


class FailureObserved(EventRoot, tag="failure.observed", frozen=True, kw_only=True):
    """The supervisor found, during or after a turn, that the agent or the machine made the attempt fail, or that it was
    stopped before the probes had judged the work.

    What the machine or a stop caused takes the place of any failure of the agent. What the agent caused takes the place
    of a turn that completed or that the agent reported as failed.
    """

    code: str
    """Error code, a key of `errors.CODES`; its bucket says what caused it."""

    detail: str
    """What was found."""


# ── what became known ──


class ScriptUnfit(EventRoot, tag="script.unfit", frozen=True, kw_only=True):
    """When the turn ended, the scripted model could not play a step with the tools that the agent offers.

    The attempt failed for that reason, however the agent ended its turn.
    """

    detail: str
    """Which step, what it needs, and which tools were offered."""


class FactsStated(EventRoot, tag="facts.stated", frozen=True, kw_only=True):
    """Facts about the attempt became known. `event.facts` settles which of several statements holds."""

    facts: dict[str, Fact]
    """The statements, by the name of the fact."""


class HistoryRead(EventRoot, tag="history.read", frozen=True, kw_only=True):
    """The history that the agent itself stores was read, or the next page of it."""

    source: str
    """Where it was read."""

    items: tuple[HistoryItem, ...]
    """The items, oldest first."""

    is_last: bool = True
    """Whether this is the last page."""


class HistoryOffered(EventRoot, tag="history.offered", frozen=True, kw_only=True):
    """Proctor is about to give messages or instructions to the thread.

    If no `history.given` follows, it is unknown whether the thread holds them.
    """

    entries: tuple[EntryId, ...] = ()
    """Ids of the messages, in the order in which they are given."""

    how: HistoryForm = "items"
    """In which form they are given."""

    references: tuple[EntryId, ...] = ()
    """Marks of the documents that are given with the prompt, in it or beside it: digests of their content."""

    items: int = 0
    """Number of the agent's own items that carry them."""

    sha256: Digest | None = None
    """Digest of these items as canonical JSON; of text, of all that the agent is given. None if there are none."""

    instructions_sha256: Digest | None = None
    """Digest of the text of the instructions; None if there are none."""


class HistoryGiven(EventRoot, tag="history.given", frozen=True, kw_only=True):
    """The thread was given messages or instructions, without a turn. They are neither a prompt nor an answer."""

    entries: tuple[EntryId, ...] = ()
    """Ids of the messages that the thread now holds, in order. Empty if the agent refused them."""

    how: HistoryForm = "items"
    """In which form they were given."""

    items: int = 0
    """Number of the agent's own items that carry them."""

    sha256: Digest | None = None
    """Digest of these items as canonical JSON; None if there are none."""

    instructions_sha256: Digest | None = None
    """Digest of the text of the instructions that the agent accepted; None if it accepted none."""

    problem: str | None = None
    """Why not everything was accepted; None if everything was."""


class ContextAssembled(EventRoot, tag="context.assembled", frozen=True, kw_only=True):
    """A context engine assembled what the model should know in this turn. Written before anything of it is given."""

    engine: str
    """Id of the engine."""

    version: str
    """Its version."""

    commits: CommitGuarantee = "exactly-once"
    """How often a completed turn reaches the engine; `at-least-once` if it takes turns through an adapter."""

    policy: FailurePolicy
    """What follows if the engine fails."""

    policy_sha256: Digest
    """Digest of the engine's version and of the settings that shape the context."""

    mode: str
    """`per_turn` or `thread_bootstrap`: when the agent's thread is given the context."""

    epoch: str | None = None
    """Identifier of the stable part of the context; None if the engine names none."""

    thread: ThreadChoice
    """Whether the turn continues a native thread or starts one."""

    reason: str
    """Why."""

    how: ContextForm
    """In which form the messages are given; `none` if the thread lacks none."""

    why_text: str | None = None
    """Why they are given as text, although the runtime declares that it takes items; None otherwise."""

    assembled: int = 0
    """Number of assembled messages."""

    dropped: int = 0
    """Number of messages and references that were left out because they do not fit, or are there already."""

    placeholders: int = 0
    """Number of masked secrets in what is given."""

    estimated_tokens: int | None = None
    """Estimated tokens of the assembled messages; None if none were assembled."""

    bytes_per_token: float | None = None
    """The ratio of that estimate."""

    ratio_source: RatioSource | None = None
    """Whether that ratio was measured or is assumed; None without an estimate."""

    sha256: Digest | None = None
    """Digest of everything that the agent should be given, with the prompt; None if the engine gave nothing."""

    addition_sha256: Digest | None = None
    """Digest of the instructions that the engine adds; None if it adds none."""


class ContextDegraded(EventRoot, tag="context.degraded", frozen=True, kw_only=True):
    """The context engine did not apply to this turn, or not in full."""

    code: str
    """Error code, a key of `errors.CODES`."""

    detail: str
    """What happened, in a sentence."""


class TurnCommitted(EventRoot, tag="turn.committed", frozen=True, kw_only=True):
    """The context engine took in a completed turn, or did not."""

    turn: EntryId
    """Id of the turn."""

    status: CommitStatus
    """Whether the engine has the turn."""

    source: CommitSource = "mirror"
    """Where the entries were read: from the mirror, or from the record if the mirror could not be written."""

    detail: str | None = None
    """Why the engine does not have the turn; None if it has."""


class ThreadLeft(EventRoot, tag="thread.left", frozen=True, kw_only=True):
    """The session leaves its native thread. What follows in the record is of another one."""

    why: str
    """Why, in a few words."""


class ResultFound(EventRoot, tag="result.found", frozen=True, kw_only=True):
    """The agent handed in its result through a file or a command, not in a message. The result is a claim."""

    source: str
    """How it was handed in: a file, or `proctor feedback`."""

    done: bool | None = None
    """Whether the agent claims that the task is done; None if the result is invalid."""

    answer: str | None = None
    """The agent's answer, if it gave one."""

    result: Any = None
    """The agent's structured result, any JSON value."""

    code: str | None = None
    """Error code of an invalid or missing result, a key of `errors.CODES`."""

    problem: str | None = None
    """What is wrong with the result; None if it is valid."""


class NoteMade(EventRoot, tag="note.made", frozen=True, kw_only=True):
    """The agent recorded a note with `proctor note`."""

    text: str
    """Text of the note."""


class HookRan(EventRoot, tag="hook.ran", frozen=True, kw_only=True):
    """A hook succeeded. A hook that failed is a warning."""

    phase: Literal["before", "after"]
    """Whether it ran before or after the attempt."""

    text: str
    """The command and how long it took."""


# ── all other frames, so that each frame is counted ──


class ReplyReceived(EventRoot, tag="replied", frozen=True, kw_only=True):
    """The agent replied to a request of Proctor."""

    method: str
    """Method of the request."""

    error: str | None = None
    """The agent's error text; None if the request succeeded."""


class RequestSent(EventRoot, tag="asked", frozen=True, kw_only=True):
    """Proctor sent a request or notification that is not a prompt."""

    method: str
    """Its method."""


class FrameNoted(EventRoot, tag="noted", frozen=True, kw_only=True):
    """A known frame that carries no event."""

    native: str
    """Its native name."""


class Unrecognized(EventRoot, tag="unrecognized", frozen=True, kw_only=True):
    """An unknown frame. It is recorded and counted, never dropped."""

    native: str
    """Its native name, as far as it can be read."""


Event = (
    SessionBegan
    | StatusChanged
    | ModelRerouted
    | StreamEnded
    | ProcessExited
    | TurnAsked
    | TurnSettled
    | TurnSteered
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
    | CompactionBegan
    | CompactionEnded
    | UsageReported
    | WarningRaised
    | ErrorReported
    | ClockFired
    | LimitReached
    | Cancelled
    | SessionRefused
    | FailureObserved
    | ScriptUnfit
    | FactsStated
    | HistoryRead
    | HistoryOffered
    | HistoryGiven
    | ContextAssembled
    | ContextDegraded
    | TurnCommitted
    | ThreadLeft
    | ResultFound
    | NoteMade
    | HookRan
    | ReplyReceived
    | RequestSent
    | FrameNoted
    | Unrecognized
)
