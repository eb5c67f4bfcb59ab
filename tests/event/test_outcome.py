"""The first thing that ends an attempt decides how it ended."""

from typing import Literal

import pytest
from hypothesis import given

from proctor.errors import CODES
from proctor.event.model import (
    Cancelled,
    ClockFired,
    ErrorReported,
    Event,
    FailureObserved,
    ProcessExited,
    PromptSent,
    ScriptUnfit,
    SessionRefused,
    StreamEnded,
    TextSaid,
    TurnAsked,
    TurnEnded,
)
from proctor.event.outcome import NOT_ENDED, Ending, Outcome, OutcomeFold
from proctor.ids import ItemId, TurnId
from tests.event.streams import TERMINAL, streams

T1 = TurnId("t1")


def ending_of(*events: Event) -> Ending:
    fold = OutcomeFold()
    for event in events:
        fold.feed(event)
    return fold.ending


@given(streams)
def test_the_first_cause_since_the_last_prompt_wins_unless_nobody_was_left(events: list[Event]) -> None:
    last = max((at for at, event in enumerate(events) if isinstance(event, TurnAsked)), default=0)
    gone = next((event for event in events[:last] if isinstance(event, StreamEnded | ProcessExited)), None)
    cause = gone or next((event for event in events[last:] if isinstance(event, TERMINAL)), None)
    ending = ending_of(*events)
    assert ending.frame == (None if cause is None else cause.frame)
    assert (ending == NOT_ENDED) is (cause is None)
    assert cause is None or ending.outcome is ending_of(cause).outcome


def test_in_a_conversation_each_turn_has_its_own_ending_until_the_channel_is_gone() -> None:
    prompt = TurnAsked(text="Go on.", frame=5, at_ms=0)
    ended = TurnEnded(turn=T1, status="completed", frame=3, at_ms=0)
    failed = TurnEnded(turn=TurnId("t2"), status="failed", frame=6, at_ms=0)
    gone = StreamEnded(cause="it closed", frame=4, at_ms=0)
    assert ending_of(ErrorReported(text="busy", frame=2, at_ms=0), ended, prompt) == NOT_ENDED
    assert ending_of(ErrorReported(text="busy", frame=2, at_ms=0), ended, prompt, failed) == Ending(
        outcome=Outcome.FAILED, code="agent.turn-failed", frame=6
    )
    steered = PromptSent(text="Faster.", frame=4, at_ms=0)
    assert ending_of(ended, steered) == Ending(outcome=Outcome.COMPLETED, frame=3), "words into a turn begin none"
    assert ending_of(ended, gone) == Ending(outcome=Outcome.COMPLETED, frame=3)
    assert ending_of(ended, gone, prompt, failed) == Ending(
        outcome=Outcome.CRASHED, code="peer.lost", detail="it closed", frame=4
    )


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
                detail="the agent sent nothing for 5 ms; the agent's last error: busy",
                frame=4,
            ),
        ),
        (
            ClockFired(clock="turn", limit_ms=5, frame=4, at_ms=0),
            Ending(
                outcome=Outcome.TIMED_OUT,
                code="limit.turn",
                detail="the turn exceeded 5 ms; the agent's last error: busy",
                frame=4,
            ),
        ),
        (
            ClockFired(clock="attempt", limit_ms=5, frame=4, at_ms=0),
            Ending(
                outcome=Outcome.TIMED_OUT,
                code="limit.attempt",
                detail="the attempt exceeded 5 ms; the agent's last error: busy",
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
            Ending(outcome=Outcome.CRASHED, code="peer.lost", detail="end of stdout", frame=4),
        ),
        (
            ProcessExited(code=3, frame=4, at_ms=0),
            Ending(outcome=Outcome.CRASHED, code="peer.hangup", detail="the agent exited with status 3", frame=4),
        ),
        (
            ProcessExited(code=None, signal=9, frame=4, at_ms=0),
            Ending(
                outcome=Outcome.CRASHED, code="peer.killed", detail="the agent was ended by signal 9 (SIGKILL)", frame=4
            ),
        ),
        (
            ProcessExited(code=137, signal=9, killer="agent", frame=4, at_ms=0),
            Ending(
                outcome=Outcome.CRASHED,
                code="agent.killed",
                detail="the agent was ended by signal 9 (SIGKILL); only its own commands could send it",
                frame=4,
            ),
        ),
        (
            ProcessExited(code=1, killer="kernel", frame=4, at_ms=0),
            Ending(
                outcome=Outcome.CRASHED,
                code="peer.killed",
                detail="the agent was ended while the kernel killed processes because memory ran out",
                frame=4,
            ),
        ),
        (
            ProcessExited(code=None, signal=11, frame=4, at_ms=0),
            Ending(outcome=Outcome.CRASHED, code="peer.hangup", detail="the agent was ended by signal 11", frame=4),
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, Ending) else value.outcome.value,
)
@pytest.mark.requirement("attempt.interrupt-one")
def test_each_cause_has_its_outcome_its_code_and_its_detail(event: Event, ending: Ending) -> None:
    error = ErrorReported(text="busy", will_retry=True, frame=3, at_ms=0)
    assert ending_of(error, event) == ending
    assert ending.code is None or ending.code in CODES


def test_an_error_that_is_reported_ends_nothing() -> None:
    assert ending_of(ErrorReported(text="busy", will_retry=False, frame=1, at_ms=0)) == NOT_ENDED


LOST = ErrorReported(text="no route", will_retry=True, code="provider.unreachable", frame=3, at_ms=0)
TOO_LONG = ClockFired(clock="turn", limit_ms=5, frame=9, at_ms=0)


def test_a_failed_turn_has_the_code_its_runtime_gives_it() -> None:
    event = TurnEnded(turn=T1, status="failed", error="no", code="provider.quota", frame=4, at_ms=0)
    assert ending_of(event) == Ending(outcome=Outcome.FAILED, code="provider.quota", detail="no", frame=4)


@pytest.mark.requirement("schedule.rate-limit")
def test_how_long_to_wait_is_told_from_the_end_on() -> None:
    failed = TurnEnded(turn=T1, status="failed", code="provider.rate-limited", retry_after_ms=700, frame=4, at_ms=3000)
    waiting = ErrorReported(
        text="slow down", code="provider.rate-limited", will_retry=True, retry_after_ms=60_000, frame=3, at_ms=1000
    )
    clock = ClockFired(clock="turn", limit_ms=5, frame=9, at_ms=21_000)
    gone = ProcessExited(code=1, is_turns_own=True, frame=9, at_ms=100_000)
    ends = [ending_of(waiting, failed), ending_of(waiting, clock), ending_of(waiting, gone), ending_of(clock)]
    assert [end.retry_after_ms for end in ends] == [700, 40_000, 0, None]
    untold = TurnEnded(turn=T1, status="failed", code="provider.rate-limited", frame=4, at_ms=3000)
    assert ending_of(waiting, untold).retry_after_ms is None, "it has waited, and was refused again"


@pytest.mark.trust
def test_a_script_that_does_not_fit_is_why_a_turn_ended_as_it_did() -> None:
    misfit = ScriptUnfit(detail="step 0 needs `patch`", frame=10, at_ms=0)
    completed = TurnEnded(turn=T1, status="completed", frame=8, at_ms=0)
    failed = TurnEnded(turn=T1, status="failed", code="provider.bad-request", frame=8, at_ms=0)
    ends = [ending_of(end, misfit) for end in (completed, failed, TOO_LONG)]
    assert ends == [
        Ending(outcome=outcome, code="script.unfit", detail="step 0 needs `patch`", frame=10)
        for outcome in (Outcome.FAILED, Outcome.FAILED, Outcome.TIMED_OUT)
    ]
    for event in (
        Cancelled(why="asked to stop", frame=8, at_ms=0),
        StreamEnded(cause="end of stdout", frame=8, at_ms=0),
    ):
        assert ending_of(event, misfit) == ending_of(event)
    again = TurnAsked(text="Go on.", frame=11, at_ms=0)
    assert ending_of(completed, misfit, again, completed).outcome is Outcome.COMPLETED


@pytest.mark.parametrize("code", ["agent.workspace", "machine.disk-full"])
def test_failure_that_was_found_takes_the_place_of_a_completed_turn_and_the_machines_that_of_the_agents(
    code: str,
) -> None:
    found = FailureObserved(code=code, detail="so it is", frame=10, at_ms=0)
    ending = Ending(outcome=Outcome.FAILED, code=code, detail="so it is", frame=10)
    completed = TurnEnded(turn=T1, status="completed", frame=8, at_ms=0)
    failed = TurnEnded(turn=T1, status="failed", code="agent.exit-status", frame=8, at_ms=0)
    refused = TurnEnded(turn=T1, status="failed", code="provider.unauthorized", frame=8, at_ms=0)
    cancelled = Cancelled(why="asked to stop", frame=8, at_ms=0)
    assert [ending_of(found), ending_of(completed, found), ending_of(failed, found)] == [ending] * 3
    assert ending_of(TOO_LONG, found).code == ("limit.turn" if code == "agent.workspace" else code)
    assert [ending_of(end, found) for end in (refused, cancelled)] == [ending_of(refused), ending_of(cancelled)]


def test_time_limit_that_ended_the_probes_is_the_outcome_of_a_completed_turn() -> None:
    over = FailureObserved(code="limit.attempt", detail="over", frame=10, at_ms=0)
    timed_out = Ending(outcome=Outcome.TIMED_OUT, code="limit.attempt", detail="over", frame=10)
    assert ending_of(TurnEnded(turn=T1, status="completed", frame=8, at_ms=0), over) == timed_out
    assert ending_of(TOO_LONG, over) == ending_of(TOO_LONG)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("run.cancelled", Outcome.CANCELLED),
        ("run.operator-cancel", Outcome.CANCELLED),
        ("limit.campaign", Outcome.TIMED_OUT),
    ],
)
def test_stop_before_the_work_was_judged_takes_the_place_of_how_the_agent_ended(code: str, outcome: Outcome) -> None:
    stopped = FailureObserved(code=code, detail="stopped", frame=10, at_ms=0)
    for end in (TurnEnded(turn=T1, status="completed", frame=8, at_ms=0), TOO_LONG):
        assert ending_of(end, stopped) == Ending(outcome=outcome, code=code, detail="stopped", frame=10)


def test_a_clock_that_fires_while_the_agent_struggles_names_the_trouble() -> None:
    detail = "the turn exceeded 5 ms; the agent's last error: no route"
    assert ending_of(LOST, TOO_LONG) == Ending(
        outcome=Outcome.TIMED_OUT, code="provider.unreachable", detail=detail, frame=9
    )


@pytest.mark.parametrize("clock", ["mission", "campaign"])
def test_a_clock_over_more_than_the_attempt_is_not_the_agents_trouble(clock: Literal["mission", "campaign"]) -> None:
    busy = ErrorReported(text="busy", code="provider.rate-limited", retry_after_ms=60_000, frame=3, at_ms=0)
    assert ending_of(busy, ClockFired(clock=clock, limit_ms=5, frame=9, at_ms=0)) == Ending(
        outcome=Outcome.TIMED_OUT,
        code=f"limit.{clock}",
        detail=f"the {clock} exceeded 5 ms; the agent's last error: busy",
        frame=9,
    )


def test_an_error_the_agent_got_past_is_not_why_a_clock_fired() -> None:
    said = TextSaid(turn=T1, item=ItemId("m"), text="Here again.", frame=5, at_ms=0)
    assert ending_of(LOST, said, TOO_LONG) == Ending(
        outcome=Outcome.TIMED_OUT, code="limit.turn", detail="the turn exceeded 5 ms", frame=9
    )


@pytest.mark.parametrize(
    ("exited", "code", "how"),
    [
        (
            ProcessExited(code=137, signal=9, frame=5, at_ms=0),
            "peer.killed",
            "the agent was ended by signal 9 (SIGKILL)",
        ),
        (ProcessExited(code=0, frame=5, at_ms=0), "peer.hangup", "the agent exited with status 0"),
    ],
)
def test_a_hangup_says_how_the_process_ended(exited: ProcessExited, code: str, how: str) -> None:
    closed = StreamEnded(cause="end of stdout", frame=4, at_ms=0)
    ending = Ending(outcome=Outcome.CRASHED, code=code, detail=f"end of stdout; {how}", frame=4)
    assert ending_of(closed, exited, exited) == ending


def test_a_process_of_one_turn_that_ends_by_itself_ends_for_the_reason_it_gave() -> None:
    why = ErrorReported(text="Error: no such thread", code="peer.refused", frame=1, at_ms=0)
    by_itself = ProcessExited(code=1, is_turns_own=True, frame=2, at_ms=0)
    killed = ProcessExited(code=None, signal=9, is_turns_own=True, frame=2, at_ms=0)
    said = "the agent's last error: Error: no such thread"
    assert [ending_of(why, by_itself), ending_of(why, killed), ending_of(by_itself)] == [
        Ending(outcome=Outcome.CRASHED, code=code, detail=detail, frame=2)
        for code, detail in (
            ("peer.refused", f"the agent exited with status 1; {said}"),
            ("peer.killed", f"the agent was ended by signal 9 (SIGKILL); {said}"),
            ("peer.hangup", "the agent exited with status 1"),
        )
    ]
