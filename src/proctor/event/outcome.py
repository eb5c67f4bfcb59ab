"""How an attempt ended, as a fold of what was recorded: the first cause that ends it wins."""

from enum import StrEnum

import msgspec

from proctor.event.model import (
    Cancelled,
    ClockFired,
    ErrorReported,
    Event,
    ProcessExited,
    SessionRefused,
    StreamEnded,
    TurnEnded,
)


class Outcome(StrEnum):
    """The ways an attempt can end. None of them says whether the task was done."""

    COMPLETED = "completed"  # the turn ended by itself
    FAILED = "failed"  # the agent says its turn failed
    TIMED_OUT = "timed_out"  # the turn's or the attempt's clock fired
    STALLED = "stalled"  # the agent fell silent
    CRASHED = "crashed"  # the agent's process or channel went away
    REFUSED = "refused"  # there was no session to be had
    CANCELLED = "cancelled"  # somebody asked us to stop
    UNKNOWN = "unknown"  # cut off: the record does not say


class Ending(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome, its code in errors.CODES (none when completed), and the row that decided it."""

    outcome: Outcome
    code: str | None = None
    detail: str | None = None
    frame: int | None = None


NOT_ENDED = Ending(outcome=Outcome.UNKNOWN)


def ending_of(event: Event, *, last_error: str | None) -> Ending | None:
    """What this event ends, if it ends anything."""
    match event:
        case TurnEnded(status="completed", frame=frame):
            return Ending(outcome=Outcome.COMPLETED, frame=frame)
        case TurnEnded(status="failed", error=error, frame=frame):
            return Ending(outcome=Outcome.FAILED, code="agent.turn-failed", detail=error or last_error, frame=frame)
        case TurnEnded(status="interrupted", error=error, frame=frame):
            return Ending(outcome=Outcome.FAILED, code="agent.interrupted", detail=error or last_error, frame=frame)
        case ClockFired(clock="stall", limit_ms=limit_ms, frame=frame):
            detail = f"nothing heard for {limit_ms} ms"
            return Ending(outcome=Outcome.STALLED, code="limit.stall", detail=_and(detail, last_error), frame=frame)
        case ClockFired(clock=clock, limit_ms=limit_ms, frame=frame):
            detail = f"the {clock} ran past {limit_ms} ms"
            return Ending(
                outcome=Outcome.TIMED_OUT, code=f"limit.{clock}", detail=_and(detail, last_error), frame=frame
            )
        case Cancelled(why=why, frame=frame):
            return Ending(outcome=Outcome.CANCELLED, code="run.cancelled", detail=why, frame=frame)
        case SessionRefused(code=code, detail=detail, frame=frame):
            return Ending(outcome=Outcome.REFUSED, code=code, detail=detail, frame=frame)
        case StreamEnded(cause=cause, frame=frame):
            return Ending(outcome=Outcome.CRASHED, code="peer.hangup", detail=cause, frame=frame)
        case ProcessExited(code=code, signal=signal, frame=frame):
            detail = f"the agent exited with code {code}" if signal is None else f"the agent got signal {signal}"
            return Ending(outcome=Outcome.CRASHED, code="peer.hangup", detail=detail, frame=frame)
        case _:
            return None


def _and(detail: str, last_error: str | None) -> str:
    return f"{detail}; the agent's last error: {last_error}" if last_error else detail


class OutcomeFold:
    """Feed it events; `ending` is what they say so far."""

    def __init__(self) -> None:
        self.ending = NOT_ENDED
        self._last_error: str | None = None

    def feed(self, event: Event) -> None:
        if isinstance(event, ErrorReported):
            self._last_error = event.text
        if self.ending.outcome is Outcome.UNKNOWN:
            self.ending = ending_of(event, last_error=self._last_error) or self.ending
