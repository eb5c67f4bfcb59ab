"""How an attempt ended, as a fold of what was recorded: the first cause since its last prompt that ends it wins."""

from enum import StrEnum

import msgspec

from proctor.event.model import (
    Cancelled,
    ClockFired,
    ErrorReported,
    Event,
    LimitReached,
    ProcessExited,
    ReasoningSaid,
    ReasoningStreamed,
    SessionRefused,
    StreamEnded,
    TextSaid,
    TextStreamed,
    ToolBegan,
    ToolEnded,
    TurnAsked,
    TurnEnded,
    UsageReported,
)


class Outcome(StrEnum):
    """The ways an attempt can end. None of them says whether the task was done."""

    COMPLETED = "completed"  # the turn ended by itself
    FAILED = "failed"  # the agent says its turn failed
    TIMED_OUT = "timed_out"  # a clock fired that does not count silence, or another limit was reached
    STALLED = "stalled"  # the agent fell silent
    CRASHED = "crashed"  # the agent's process or channel went away
    REFUSED = "refused"  # there was no session to be had
    CANCELLED = "cancelled"  # somebody asked us to stop
    UNKNOWN = "unknown"  # cut off: the record does not say

    # An enum's own is a call in Python, and reports count by outcome.
    __hash__ = str.__hash__


class Ending(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome, its code in errors.CODES (none when completed), and the row that decided it.

    `retry_after_ms` is how long after that row another try is worth it, where the agent or its provider said so.
    """

    outcome: Outcome
    code: str | None = None
    detail: str | None = None
    frame: int | None = None
    retry_after_ms: int | None = None


NOT_ENDED = Ending(outcome=Outcome.UNKNOWN)

# Nobody does this to itself: SIGHUP, SIGINT, SIGKILL, SIGTERM.
_FROM_OUTSIDE = {1: "SIGHUP", 2: "SIGINT", 9: "SIGKILL", 15: "SIGTERM"}

_ATTEMPTS_OWN = ("stall", "turn", "attempt")


def ending_of(event: Event, *, trouble: ErrorReported | None) -> Ending | None:
    """What this event ends, if it ends anything. `trouble` is the last error, if the agent has not got past it."""
    last_error = None if trouble is None else trouble.text
    match event:
        case TurnEnded(status="completed", frame=frame):
            return Ending(outcome=Outcome.COMPLETED, frame=frame)
        case TurnEnded(status="failed", error=error, code=code, frame=frame, retry_after_ms=wait_ms):
            code = code or "agent.turn-failed"
            detail = error or last_error
            return Ending(outcome=Outcome.FAILED, code=code, detail=detail, frame=frame, retry_after_ms=wait_ms)
        case TurnEnded(status="interrupted", error=error, frame=frame):
            return Ending(outcome=Outcome.FAILED, code="agent.interrupted", detail=error or last_error, frame=frame)
        case ClockFired(clock=clock, limit_ms=limit_ms, frame=frame):
            outcome = Outcome.STALLED if clock == "stall" else Outcome.TIMED_OUT
            how = "nothing heard for" if clock == "stall" else f"the {clock} ran past"
            # What it was still struggling with says more than that we would not wait longer; of a clock over more than
            # this attempt it says nothing.
            own = trouble if clock in _ATTEMPTS_OWN else None
            code = (own and own.code) or f"limit.{clock}"
            detail = _and(f"{how} {limit_ms} ms", last_error)
            wait_ms = _still_to_wait_ms(own, event)
            return Ending(outcome=outcome, code=code, detail=detail, frame=frame, retry_after_ms=wait_ms)
        case LimitReached(limit=limit, most=most, used=used, frame=frame):
            detail = f"{used} {limit} were used, and {most} are allowed"
            return Ending(outcome=Outcome.TIMED_OUT, code=f"limit.{limit}", detail=detail, frame=frame)
        case Cancelled(why=why, frame=frame):
            return Ending(outcome=Outcome.CANCELLED, code="run.cancelled", detail=why, frame=frame)
        case SessionRefused(code=code, detail=detail, frame=frame):
            return Ending(outcome=Outcome.REFUSED, code=code, detail=detail, frame=frame)
        case StreamEnded(cause=cause, frame=frame):
            return Ending(outcome=Outcome.CRASHED, code="peer.hangup", detail=cause, frame=frame)
        case ProcessExited(signal=signal, frame=frame):
            code = "peer.killed" if signal in _FROM_OUTSIDE else (trouble and trouble.code) or "peer.hangup"
            detail = _and(_exit(event), last_error)
            wait_ms = _still_to_wait_ms(trouble, event)
            return Ending(outcome=Outcome.CRASHED, code=code, detail=detail, frame=frame, retry_after_ms=wait_ms)
        case _:
            return None


def _still_to_wait_ms(trouble: ErrorReported | None, event: Event) -> int | None:
    if trouble is None or trouble.retry_after_ms is None:
        return None
    return max(0, trouble.at_ms + trouble.retry_after_ms - event.at_ms)


def _exit(event: ProcessExited) -> str:
    if event.signal is None:
        return f"the agent exited with code {event.code}"
    name = _FROM_OUTSIDE.get(event.signal)
    return f"the agent got signal {event.signal}" + (f" ({name})" if name else "")


def _and(detail: str, last_error: str | None) -> str:
    return f"{detail}; the agent's last error: {last_error}" if last_error else detail


# What an agent does again when it has got past an error.
_PROGRESS = (TextStreamed, TextSaid, ReasoningStreamed, ReasoningSaid, ToolBegan, ToolEnded, UsageReported)


class OutcomeFold:
    """Feed it events; `ending` is what they say so far. In a conversation it is that of the last turn."""

    def __init__(self) -> None:
        self.ending = NOT_ENDED
        self._trouble: ErrorReported | None = None
        self._gone = NOT_ENDED
        self._is_cut_off = False

    def feed(self, event: Event) -> None:
        if isinstance(event, _PROGRESS):  # most events of a turn, and none of them ends anything
            self._trouble = None
            return
        match event:
            case ErrorReported():
                self._trouble = event
            case TurnAsked():
                # Another turn, if there is anybody left to take it.
                self.ending, self._trouble = self._gone, None
            case StreamEnded() | ProcessExited(is_turns_own=False):
                self._left(event)
            case _:
                pass
        if self.ending.outcome is Outcome.UNKNOWN:
            self.ending = ending_of(event, trouble=self._trouble) or self.ending

    def _left(self, event: StreamEnded | ProcessExited) -> None:
        """How the process ended is known only after its channel has closed, and says why that was."""
        ending = ending_of(event, trouble=None)
        assert ending is not None
        is_told = self.ending == self._gone
        if self._gone is NOT_ENDED:
            self._gone, self._is_cut_off = ending, isinstance(event, StreamEnded)
        elif self._is_cut_off and isinstance(event, ProcessExited):
            detail = f"{self._gone.detail}; {ending.detail}"
            self._gone, self._is_cut_off = msgspec.structs.replace(self._gone, code=ending.code, detail=detail), False
        if is_told:
            self.ending = self._gone
