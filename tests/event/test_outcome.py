"""The first thing that ends an attempt decides how it ended."""

import pytest
from hypothesis import given

from proctor.errors import CODES
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
from proctor.event.outcome import NOT_ENDED, Ending, Outcome, OutcomeFold
from proctor.ids import TurnId
from tests.event.streams import TERMINAL, streams

T1 = TurnId("t1")


def ending_of(*events: Event) -> Ending:
    fold = OutcomeFold()
    for event in events:
        fold.feed(event)
    return fold.ending


@given(streams)
def test_the_first_cause_wins_and_nothing_after_it_counts(events: list[Event]) -> None:
    first = next((at for at, event in enumerate(events) if isinstance(event, TERMINAL)), None)
    if first is None:
        assert ending_of(*events) == NOT_ENDED
    else:
        assert ending_of(*events) == ending_of(*events[: first + 1])
        assert ending_of(*events).frame == events[first].frame
        assert ending_of(*events).outcome is not Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("event", "ending"),
    [
        (TurnEnded(turn=T1, status="completed", frame=4, at_ms=0), Ending(outcome=Outcome.COMPLETED, frame=4)),
        (
            TurnEnded(turn=T1, status="failed", error="no credit", frame=4, at_ms=0),
            Ending(outcome=Outcome.FAILED, code="agent.turn-failed", detail="no credit", frame=4),
        ),
        (
            TurnEnded(turn=T1, status="interrupted", frame=4, at_ms=0),
            Ending(outcome=Outcome.FAILED, code="agent.interrupted", detail="busy", frame=4),
        ),
        (
            ClockFired(clock="stall", limit_ms=5, frame=4, at_ms=0),
            Ending(
                outcome=Outcome.STALLED,
                code="limit.stall",
                detail="nothing heard for 5 ms; the agent's last error: busy",
                frame=4,
            ),
        ),
        (
            ClockFired(clock="turn", limit_ms=5, frame=4, at_ms=0),
            Ending(
                outcome=Outcome.TIMED_OUT,
                code="limit.turn",
                detail="the turn ran past 5 ms; the agent's last error: busy",
                frame=4,
            ),
        ),
        (
            ClockFired(clock="attempt", limit_ms=5, frame=4, at_ms=0),
            Ending(
                outcome=Outcome.TIMED_OUT,
                code="limit.attempt",
                detail="the attempt ran past 5 ms; the agent's last error: busy",
                frame=4,
            ),
        ),
        (
            Cancelled(why="asked to stop", frame=4, at_ms=0),
            Ending(outcome=Outcome.CANCELLED, code="run.cancelled", detail="asked to stop", frame=4),
        ),
        (
            SessionRefused(code="peer.deadline", detail="no reply", frame=4, at_ms=0),
            Ending(outcome=Outcome.REFUSED, code="peer.deadline", detail="no reply", frame=4),
        ),
        (
            StreamEnded(cause="end of stdout", frame=4, at_ms=0),
            Ending(outcome=Outcome.CRASHED, code="peer.hangup", detail="end of stdout", frame=4),
        ),
        (
            ProcessExited(code=3, frame=4, at_ms=0),
            Ending(outcome=Outcome.CRASHED, code="peer.hangup", detail="the agent exited with code 3", frame=4),
        ),
        (
            ProcessExited(code=None, signal=9, frame=4, at_ms=0),
            Ending(outcome=Outcome.CRASHED, code="peer.hangup", detail="the agent got signal 9", frame=4),
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, Ending) else value.outcome.value,
)
def test_each_cause_has_its_outcome_its_code_and_its_detail(event: Event, ending: Ending) -> None:
    error = ErrorReported(text="busy", will_retry=True, frame=3, at_ms=0)
    assert ending_of(error, event) == ending
    assert ending.code is None or ending.code in CODES


def test_an_error_that_is_reported_ends_nothing() -> None:
    assert ending_of(ErrorReported(text="busy", will_retry=False, frame=1, at_ms=0)) == NOT_ENDED
