"""Fold events into how an attempt ended: the first event after the last prompt that ends the attempt decides."""

from enum import StrEnum

import msgspec

from proctor.errors import Bucket, bucket_of
from proctor.event.model import (
    Cancelled,
    ClockFired,
    ErrorReported,
    Event,
    FailureObserved,
    LimitReached,
    ProcessExited,
    ReasoningSaid,
    ReasoningStreamed,
    ScriptUnfit,
    SessionRefused,
    StreamEnded,
    TextSaid,
    TextStreamed,
    ThreadLeft,
    ToolBegan,
    ToolEnded,
    TurnAsked,
    TurnEnded,
    UsageReported,
)
from proctor.event.row import Operator

OPERATOR_CANCEL = "run.operator-cancel"
"""The code of an attempt that an operator cancelled alone."""


class Outcome(StrEnum):
    """How an attempt can end. No outcome says whether the task was done."""

    COMPLETED = "completed"
    """The agent ended its turn normally."""

    FAILED = "failed"
    """The agent reported that its turn failed."""

    TIMED_OUT = "timed_out"
    """A time limit other than `stall`, or the limit of tokens or evidence, was exceeded."""

    STALLED = "stalled"
    """The agent sent nothing for too long."""

    CRASHED = "crashed"
    """The agent's process or channel ended."""

    REFUSED = "refused"
    """No session could be opened."""

    CANCELLED = "cancelled"
    """The attempt was cancelled."""

    UNKNOWN = "unknown"
    """The record does not show the end: the attempt was cut off."""

    # Enum.__hash__ is a Python function, which is slow for counting by outcome.
    __hash__ = str.__hash__


class Ending(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How an attempt ended."""

    outcome: Outcome
    """The outcome."""

    code: str | None = None
    """Error code, a key of `errors.CODES`; None if the attempt completed."""

    detail: str | None = None
    """What happened, in a sentence; None if there is nothing to add."""

    frame: int | None = None
    """Number of the row that decided the outcome; None if the record does not show the end."""

    retry_after_ms: int | None = None
    """Time after that row before a retry can succeed, in milliseconds, if the agent or its provider named one."""


NOT_ENDED = Ending(outcome=Outcome.UNKNOWN)

# Signals that a process sends to another one, or to itself, to end it.
_FROM_OUTSIDE = {1: "SIGHUP", 2: "SIGINT", 9: "SIGKILL", 15: "SIGTERM"}

# How a turn ends if its agent ignores, reports or repeats the error of a scripted model.
_ENDS_OF_MISFITS = {
    Outcome.COMPLETED: Outcome.FAILED,
    Outcome.FAILED: Outcome.FAILED,
    Outcome.TIMED_OUT: Outcome.TIMED_OUT,
    Outcome.STALLED: Outcome.STALLED,
}

# Codes of failures that the supervisor finds while it judges the work; any other is `failed`.
_OUTCOMES_OF_CODES = {
    "run.cancelled": Outcome.CANCELLED,
    OPERATOR_CANCEL: Outcome.CANCELLED,
    "limit.attempt": Outcome.TIMED_OUT,
    "limit.mission": Outcome.TIMED_OUT,
    "limit.campaign": Outcome.TIMED_OUT,
}

_ATTEMPT_CLOCKS = ("stall", "turn", "attempt")


def ending_of(event: Event, *, last_error: ErrorReported | None) -> Ending | None:
    """Return the ending that an event causes, or None. `last_error` is the last error without a sign of recovery."""
    error_text = None if last_error is None else last_error.text
    match event:
        case TurnEnded(status="completed", frame=frame):
            return Ending(outcome=Outcome.COMPLETED, frame=frame)
        case TurnEnded(status="failed", error=error, code=code, frame=frame, retry_after_ms=wait_ms):
            code = code or "agent.turn-failed"
            detail = error or error_text
            return Ending(outcome=Outcome.FAILED, code=code, detail=detail, frame=frame, retry_after_ms=wait_ms)
        case TurnEnded(status="interrupted", error=error, frame=frame):
            return Ending(outcome=Outcome.FAILED, code="agent.interrupted", detail=error or error_text, frame=frame)
        case ClockFired(clock=clock, limit_ms=limit_ms, frame=frame):
            outcome = Outcome.STALLED if clock == "stall" else Outcome.TIMED_OUT
            how = "the agent sent nothing for" if clock == "stall" else f"the {clock} exceeded"
            # An unresolved error is the likely cause of a timeout. The clocks of the mission and the campaign run over
            # several attempts, so that there it is not.
            cause = last_error if clock in _ATTEMPT_CLOCKS else None
            code = (cause and cause.code) or f"limit.{clock}"
            detail = _with_error(f"{how} {limit_ms} ms", error_text)
            wait_ms = _remaining_wait_ms(cause, event)
            return Ending(outcome=outcome, code=code, detail=detail, frame=frame, retry_after_ms=wait_ms)
        case LimitReached(limit=limit, most=most, used=used, frame=frame):
            detail = limit_text(limit, most=most, used=used)
            return Ending(outcome=Outcome.TIMED_OUT, code=f"limit.{limit}", detail=detail, frame=frame)
        case Cancelled(why=why, by=Operator() as by, frame=frame):
            detail = f"cancelled by {by}: {why}"
            return Ending(outcome=Outcome.CANCELLED, code=OPERATOR_CANCEL, detail=detail, frame=frame)
        case Cancelled(why=why, frame=frame):
            return Ending(outcome=Outcome.CANCELLED, code="run.cancelled", detail=why, frame=frame)
        case SessionRefused(code=code, detail=detail, frame=frame):
            return Ending(outcome=Outcome.REFUSED, code=code, detail=detail, frame=frame)
        case FailureObserved(code=code, detail=detail, frame=frame):
            return Ending(outcome=_OUTCOMES_OF_CODES.get(code, Outcome.FAILED), code=code, detail=detail, frame=frame)
        case StreamEnded(cause=cause, frame=frame):
            # Unless its process exits as well, it is unknown whether the agent caused this.
            return Ending(outcome=Outcome.CRASHED, code="peer.lost", detail=cause, frame=frame)
        case ProcessExited(sessions=sessions, frame=frame):
            own_code = "peer.hangup" if sessions <= 1 else "peer.lost"
            code = _code_of_kill(event) or (last_error and last_error.code) or own_code
            detail = _with_error(_describe_exit(event), error_text)
            wait_ms = _remaining_wait_ms(last_error, event)
            return Ending(outcome=Outcome.CRASHED, code=code, detail=detail, frame=frame, retry_after_ms=wait_ms)
        case _:
            return None


def limit_text(limit: str, *, most: int, used: int) -> str:
    """Describe a limit that was exceeded.

    >>> limit_text("tokens", most=9, used=10), limit_text("evidence", most=9, used=10)
    ('10 tokens used, 9 allowed', '10 bytes of evidence recorded, 9 allowed')
    """
    what = "bytes of evidence recorded" if limit == "evidence" else f"{limit} used"
    return f"{used} {what}, {most} allowed"


def _remaining_wait_ms(error: ErrorReported | None, event: Event) -> int | None:
    if error is None or error.retry_after_ms is None:
        return None
    return max(0, error.at_ms + error.retry_after_ms - event.at_ms)


def _code_of_kill(event: ProcessExited) -> str | None:
    """Return the code if a signal of another process ended the agent, or None."""
    if event.killer == "kernel":
        return "peer.killed"
    if event.signal not in _FROM_OUTSIDE:
        return None
    return "agent.killed" if event.killer == "agent" and event.sessions <= 1 else "peer.killed"


def _describe_exit(event: ProcessExited) -> str:
    if event.killer == "kernel":
        return "the agent was ended while the kernel killed processes because memory ran out"
    if event.signal is None:
        return f"the agent exited with status {event.code}"
    name = _FROM_OUTSIDE.get(event.signal)
    by = "; only its own commands could send it" if event.killer == "agent" and name else ""
    return f"the agent was ended by signal {event.signal}" + (f" ({name}){by}" if name else "")


def _with_error(detail: str, error_text: str | None) -> str:
    return f"{detail}; the agent's last error: {error_text}" if error_text else detail


def _takes_place(code: str, ending: Ending) -> bool:
    """Whether a failure that the supervisor found replaces the ending."""
    if ending.outcome is Outcome.COMPLETED:
        return True
    is_agents_own = ending.code is not None and bucket_of(ending.code) is Bucket.AGENT
    return is_agents_own and (ending.outcome is Outcome.FAILED or bucket_of(code) is not Bucket.AGENT)


# Events that show that the agent has recovered from an error.
_PROGRESS = (TextStreamed, TextSaid, ReasoningStreamed, ReasoningSaid, ToolBegan, ToolEnded, UsageReported)


class OutcomeFold:
    """Fold events into `ending`. In a conversation it is the ending of the last turn."""

    def __init__(self) -> None:
        self.ending = NOT_ENDED
        self._last_error: ErrorReported | None = None
        self._agent_end = NOT_ENDED
        self._lacks_exit = False

    def feed(self, event: Event) -> None:
        if isinstance(event, _PROGRESS):  # most events of a turn; no such event ends an attempt
            self._last_error = None
            return
        match event:
            case ErrorReported():
                self._last_error = event
            case TurnAsked():
                # If the agent is gone, the new turn has already ended.
                self.ending, self._last_error = self._agent_end, None
            case ThreadLeft():
                # The turn continues in another thread, and perhaps in another process.
                self.ending = self._agent_end = NOT_ENDED
                self._last_error, self._lacks_exit = None, False
            case StreamEnded() | ProcessExited(is_turns_own=False):
                self._end_agent(event)
            case ScriptUnfit(detail=detail, frame=frame) if self.ending.outcome in _ENDS_OF_MISFITS:
                outcome = _ENDS_OF_MISFITS[self.ending.outcome]
                self.ending = Ending(outcome=outcome, code="script.unfit", detail=detail, frame=frame)
            case FailureObserved(code=code) if _takes_place(code, self.ending):
                self.ending = ending_of(event, last_error=None) or self.ending
            case _:
                pass
        if self.ending.outcome is Outcome.UNKNOWN:
            self.ending = ending_of(event, last_error=self._last_error) or self.ending

    def _end_agent(self, event: StreamEnded | ProcessExited) -> None:
        """Record the end of the agent. Its exit status is known only after its channel closed, and explains why."""
        ending = ending_of(event, last_error=None)
        assert ending is not None
        is_current = self.ending == self._agent_end
        if self._agent_end is NOT_ENDED:
            self._agent_end, self._lacks_exit = ending, isinstance(event, StreamEnded)
        elif self._lacks_exit and isinstance(event, ProcessExited):
            detail = f"{self._agent_end.detail}; {ending.detail}"
            self._agent_end = msgspec.structs.replace(self._agent_end, code=ending.code, detail=detail)
            self._lacks_exit = False
        if is_current:
            self.ending = self._agent_end
