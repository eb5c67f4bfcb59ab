"""The rows of frames.jsonl: frames of the connection to the agent, and the supervisor's own records."""

from enum import StrEnum
from typing import Any, Literal

import msgspec

from proctor.event.history_item import HistoryItem
from proctor.fact import Fact
from proctor.ids import Digest, EntryId, ProcessId

GENESIS = "0" * 32


class Direction(StrEnum):
    """Who sent a row."""

    IN = "in"
    """The agent."""

    OUT = "out"
    """Proctor, to the agent."""

    ERR = "err"
    """The agent, on standard error."""

    SELF = "self"
    """The supervisor, about what it observed or decided."""

    # Enum.__hash__ is a Python function, which is slow for counting every row.
    __hash__ = str.__hash__


class Row(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """One row of frames.jsonl. It has `frame`, or `text` if the bytes were not JSON."""

    seq: int
    """Number of the row in its file, from 1."""

    at_ms: int
    """Wall-clock time at which the row was recorded, in milliseconds since the epoch."""

    dir: Direction
    """Who sent it."""

    prev: str
    """Digest of the line before, in hex; 32 zeros for the first row."""

    frame: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """The JSON value, verbatim except for redacted secrets."""

    text: str | None = None
    """The text, if it is not JSON."""

    redacted: tuple[str, ...] = ()
    """Names of the secrets that were masked in this row."""

    carried: bool = False
    """Whether redaction moved text of a stream from this row to a later one, or into it from an earlier one."""


# ── the frames of `self` rows ──

HistoryForm = Literal["items", "text"]
"""How messages are given to a thread: as the agent's own items, or as text in a prompt."""
ContextForm = Literal["items", "text", "none"]
FailurePolicy = Literal["degrade", "strict"]
ThreadChoice = Literal["start", "resume", "fork"]
CommitStatus = Literal["committed", "queued", "blocked", "none"]
CommitSource = Literal["mirror", "fallback"]
RatioSource = Literal["assumed", "measured"]
CommitGuarantee = Literal["exactly-once", "at-least-once"]
"""How often a completed turn reaches a context engine: once, or again after a crash."""


class SupervisorRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="saw", omit_defaults=True):
    """Base class of the frames of `self` rows, in which the supervisor records what it observed or did."""


class TurnWanted(SupervisorRow, tag="turn.wanted", frozen=True, kw_only=True):
    """The caller requested a turn of a conversation. The row is written before anything is sent to the agent."""

    text: str | None = None
    """The prompt; None if the request is not a prompt."""


class TurnClosed(SupervisorRow, tag="turn.closed", frozen=True, kw_only=True):
    """A turn of a session with an id is over, with everything that the agent still did after its end."""


class SteerTaken(SupervisorRow, tag="turn.steered", frozen=True, kw_only=True):
    """The agent accepted a text that was sent into its running turn."""

    text: str
    """The text."""


class ClockRanOut(SupervisorRow, tag="clock.fired", frozen=True, kw_only=True):
    """A time limit ran out."""

    clock: Literal["stall", "turn", "attempt", "mission", "campaign"]
    """Which limit."""

    limit_ms: int
    """The limit in milliseconds. For `mission` and `campaign`, what was left of it when the attempt began."""


class LimitHit(SupervisorRow, tag="limit.reached", frozen=True, kw_only=True):
    """The attempt exceeded a limit other than time."""

    limit: Literal["tokens", "evidence"]
    """Which limit: tokens, or bytes of evidence."""

    most: int
    """The largest allowed value."""

    used: int
    """The value reached."""


class Operator(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A process outside the campaign that requested something, as the kernel identifies it."""

    user: str | None
    """Name of the user; None if the uid has none."""

    uid: int
    """User id."""

    pid: int
    """Process id."""

    def __str__(self) -> str:
        return f"{self.user or 'an unnamed user'} (uid {self.uid}, pid {self.pid})"


class CancelRequested(SupervisorRow, tag="cancelled", frozen=True, kw_only=True):
    """The attempt was cancelled."""

    why: str
    """The reason, in a few words."""

    by: Operator | None = None
    """Who cancelled this attempt alone; None if it was stopped with its whole campaign, session or pool."""


ASKED_TO_STOP = CancelRequested(why="asked to stop")


class SessionRefusal(SupervisorRow, tag="session.refused", frozen=True, kw_only=True):
    """No session could be opened."""

    code: str
    """Error code, a key of `errors.CODES`."""

    detail: str
    """What is wrong."""


class FailureFound(SupervisorRow, tag="failure.found", frozen=True, kw_only=True):
    """The supervisor found, during or after a turn, that the agent or the machine made the attempt fail, or that it was
    stopped before the probes had judged the work."""

    code: str
    """Error code, a key of `errors.CODES`; its bucket says what caused it."""

    detail: str
    """What was found."""


class ScriptMisfit(SupervisorRow, tag="script.unfit", frozen=True, kw_only=True):
    """When the turn ended, the scripted model could not play a step with the tools that the agent offers."""

    detail: str
    """Which step, what it needs, and which tools were offered."""


class ChannelClosed(SupervisorRow, tag="stream.ended", frozen=True, kw_only=True):
    """The channel to the agent closed."""

    cause: str
    """Why it closed, in a few words."""


class ChildExited(SupervisorRow, tag="process.exited", frozen=True, kw_only=True):
    """The agent's process ended."""

    code: int | None = None
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
    """How many sessions the process carried. With several, it is unknown which of them caused the end."""


class QuestionAnswered(SupervisorRow, tag="approval.resolved", frozen=True, kw_only=True):
    """A request for an approval was answered or withdrawn."""

    request: str
    """Id of the request."""

    method: str
    """Native method of the request."""

    decision: str
    """The answer."""

    by: str
    """Who decided: `policy`; `sandbox` (the sandbox already allows it); `callback`; `tool` (a tool that the caller
    registered); `deadline` (no answer in time); `error` (the callback failed); `cancelled` (withdrawn unanswered)."""


class TailReleased(SupervisorRow, tag="text.released", frozen=True, kw_only=True):
    """Text that redaction had held back, released at the end of its stream."""

    stream: str
    """Which stream."""

    text: str
    """The text."""


class StepTaken(SupervisorRow, tag="step", frozen=True, kw_only=True):
    """An action or state of the supervisor that explains later rows, such as a signal it sent."""

    step: str
    """Name of the step."""

    detail: dict[str, Any] = {}
    """Details of the step."""


class FactsLearned(SupervisorRow, tag="facts", frozen=True, kw_only=True):
    """Facts about the agent and its session."""

    facts: dict[str, Fact]
    """The statements, by the name of the fact."""


class HistoryKept(SupervisorRow, tag="history", frozen=True, kw_only=True):
    """The history of the thread, read from a file that the agent wrote."""

    source: str
    """The file it was read from."""

    items: tuple[HistoryItem, ...]
    """The items, oldest first."""


class HistoryOffer(SupervisorRow, tag="history.offer", frozen=True, kw_only=True):
    """Proctor is about to give messages or instructions to the thread. The row is written before anything is sent.

    Without a receipt after it, it is unknown what the thread holds.
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
    """Digest of these items as canonical JSON; of text, of all that the agent is given. Null if there are none."""

    instructions_sha256: Digest | None = None
    """Digest of the text of the instructions; null if there are none."""


class HistoryReceipt(SupervisorRow, tag="history.receipt", frozen=True, kw_only=True):
    """The agent accepted or refused what it was offered. There may be one row for messages and one for instructions."""

    entries: tuple[EntryId, ...] = ()
    """Ids of the messages that the thread now holds, in order."""

    how: HistoryForm = "items"
    """In which form they were given."""

    items: int = 0
    """Number of the agent's own items that carry them."""

    sha256: Digest | None = None
    """Digest of these items as canonical JSON; null if there are none."""

    instructions_sha256: Digest | None = None
    """Digest of the text of the instructions that the agent accepted; null if it accepted none."""

    problem: str | None = None
    """Why not everything was accepted; null if everything was."""


class ContextChosen(SupervisorRow, tag="context.assembled", frozen=True, kw_only=True):
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
    """Identifier of the stable part of the context; null if the engine names none."""

    thread: ThreadChoice
    """Whether the turn continues a native thread or starts one."""

    reason: str
    """Why."""

    how: ContextForm
    """In which form the messages are given; `none` if the thread lacks none."""

    why_text: str | None = None
    """Why they are given as text, although the runtime declares that it takes items; null otherwise."""

    assembled: int = 0
    """Number of assembled messages."""

    dropped: int = 0
    """Number of messages and references that were left out because they do not fit, or are there already."""

    placeholders: int = 0
    """Number of masked secrets in what is given."""

    estimated_tokens: int | None = None
    """Estimated tokens of the assembled messages; null if none were assembled."""

    bytes_per_token: float | None = None
    """The ratio of that estimate."""

    ratio_source: RatioSource | None = None
    """Whether that ratio was measured or is assumed; null without an estimate."""

    sha256: Digest | None = None
    """Digest of everything that the agent should be given, with the prompt; null if the engine gave nothing."""

    addition_sha256: Digest | None = None
    """Digest of the instructions that the engine adds; null if it adds none."""


class ContextProblem(SupervisorRow, tag="context.degraded", frozen=True, kw_only=True):
    """The context engine did not apply to this turn, or not in full."""

    code: str
    """Error code, a key of `errors.CODES`."""

    detail: str
    """What happened, in a sentence."""


class CommitMade(SupervisorRow, tag="turn.committed", frozen=True, kw_only=True):
    """The context engine took in a completed turn, or did not."""

    turn: EntryId
    """Id of the turn."""

    status: CommitStatus
    """Whether the engine has the turn."""

    source: CommitSource = "mirror"
    """Where the entries were read: from the mirror, or from the record if the mirror could not be written."""

    detail: str | None = None
    """Why the engine does not have the turn; null if it has."""


class ThreadDropped(SupervisorRow, tag="thread.left", frozen=True, kw_only=True):
    """The session leaves its native thread. What follows in the record is of another one."""

    why: str
    """Why, in a few words."""

    process: ProcessId | None = None
    """Id of the agent process that has sent the frames so far, or those since the last such row. Null if none did."""


class ResultRead(SupervisorRow, tag="result", frozen=True, kw_only=True):
    """The agent's result, from a result file or from `proctor feedback`."""

    source: str
    """How it was handed in."""

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


class NoteHeard(SupervisorRow, tag="note", frozen=True, kw_only=True):
    """A note that the agent recorded with `proctor note`."""

    text: str
    """Text of the note."""


class HookEnded(SupervisorRow, tag="hook", frozen=True, kw_only=True):
    """A hook ended."""

    phase: Literal["before", "after"]
    """Whether it ran before or after the attempt."""

    argv: tuple[str, ...]
    """The command."""

    duration_ms: int
    """How long it ran, in milliseconds."""

    exit_code: int | None = None
    """Exit status; None if it did not exit by itself."""

    signal: int | None = None
    """Number of the signal that ended it; None if it exited by itself."""

    timed_out: bool = False
    """Whether it exceeded its time limit."""

    stdout_tail: str = ""
    """End of its standard output."""

    stderr_tail: str = ""
    """End of its standard error."""

    problem: str | None = None
    """Why it counts as failed; None if it succeeded."""


# Steps that become warnings: a callback raised, returned an invalid value or did not end.
CALLBACK_FAILED = "callback failed"
CALLBACK_GIVEN_UP = "callback given up"

HISTORY_UNREAD = "history not read"

# A step that becomes a warning: an invalid or surplus message arrived on the feedback socket.
MESSAGE_REFUSED = "message refused"


AnySupervisorRow = (
    TurnWanted
    | TurnClosed
    | SteerTaken
    | ClockRanOut
    | LimitHit
    | CancelRequested
    | SessionRefusal
    | FailureFound
    | ScriptMisfit
    | ChannelClosed
    | ChildExited
    | QuestionAnswered
    | TailReleased
    | StepTaken
    | FactsLearned
    | HistoryKept
    | HistoryOffer
    | HistoryReceipt
    | ContextChosen
    | ContextProblem
    | CommitMade
    | ThreadDropped
    | ResultRead
    | NoteHeard
    | HookEnded
)
