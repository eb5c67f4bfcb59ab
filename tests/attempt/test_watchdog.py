"""Three clocks: which one fires and when, and what they leave alone."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.attempt.watchdog import LAG_S, TICK_S, ClockExpiry, LimitExceeded, Stop, Watch, under_watch
from proctor.errors import HangupError, MachineError, ProctorError
from proctor.testing.clock import FakeClock
from tests.runtime.twin import run

ATTEMPT = ClockExpiry(clock="attempt", limit_ms=9000)
TURN = ClockExpiry(clock="turn", limit_ms=5000)
STALL = ClockExpiry(clock="stall", limit_ms=2000)


def new_watch(now_s: float = 0.0) -> Watch:
    return Watch(now_s=now_s, attempt_ms=9000, turn_ms=5000, stall_ms=2000)


# ── the pure watch ──


@pytest.mark.requirement("attempt.clocks")
def test_the_stall_clock_counts_from_the_last_thing_heard() -> None:
    watch = new_watch()
    assert watch.expired(1.5) is None
    watch.heard(1.5)
    assert (watch.expired(3.0), watch.expired(3.5)) == (None, STALL)


@pytest.mark.requirement("attempt.clocks")
def test_the_turn_clock_counts_from_the_turn_and_what_is_heard_does_not_move_it() -> None:
    watch = new_watch()
    watch.turn_began(1.0)
    watch.heard(5.5)
    assert (watch.expired(5.5), watch.expired(6.0)) == (None, TURN)


@pytest.mark.requirement("attempt.clocks")
def test_the_attempt_clock_counts_from_the_start_and_comes_first() -> None:
    watch = new_watch()
    watch.turn_began(8.0)
    watch.heard(8.5)
    assert (watch.expired(8.5), watch.expired(9.0)) == (None, ATTEMPT)
    assert watch.expired(100.0) == ATTEMPT


def test_a_turn_that_begins_late_is_not_blamed_for_the_silence_before_it() -> None:
    watch = new_watch()
    watch.turn_began(1.5)
    assert (watch.expired(3.0), watch.expired(3.5)) == (None, STALL)


def test_what_was_heard_earlier_moves_nothing() -> None:
    watch = new_watch(now_s=1.0)
    watch.heard(0.0)
    assert watch.expired(3.0) == STALL


def test_evidence_beyond_its_limit_is_reported_before_any_clock() -> None:
    watch = Watch(now_s=0.0, attempt_ms=1, turn_ms=1, stall_ms=1, evidence_bytes=100)
    watch.evidence_grew(100)
    assert watch.expired(9.0) == ClockExpiry(clock="attempt", limit_ms=1)
    watch.evidence_grew(101)
    assert watch.expired(9.0) == LimitExceeded(limit="evidence", most=100, used=101)


def test_time_in_which_proctor_does_not_run_counts_for_no_clock() -> None:
    limits: dict[str, Any] = {"attempt_ms": 9000, "turn_ms": 9000, "stall_ms": 9000}
    for clock in limits:
        watch = Watch(now_s=0.0, **{**limits, clock: 2000})
        watch.turn_began(0.0)
        watch.discount_lag(60.0)
        assert watch.expired(61.9) is None
        assert watch.expired(62.0) == ClockExpiry(clock=clock.removesuffix("_ms"), limit_ms=2000)  # type: ignore[arg-type]
    watch = Watch(now_s=0.0, **limits, left=("mission", 2000))
    watch.discount_lag(60.0)
    assert (watch.expired(61.9), watch.expired(62.0)) == (None, ClockExpiry(clock="mission", limit_ms=2000))


def test_time_in_which_proctor_does_not_run_during_a_hold_is_discounted_once() -> None:
    watch = Watch(now_s=0.0, attempt_ms=2000, turn_ms=9000, stall_ms=9000)
    watch.hold(1.0)
    watch.discount_lag(10.0)
    watch.release(20.0)
    assert (watch.expired(20.9), watch.expired(21.0)) == (None, ClockExpiry(clock="attempt", limit_ms=2000))


@pytest.mark.requirement("attempt.clocks")
def test_all_clocks_stand_while_somebody_else_is_waited_for() -> None:
    watch = new_watch()
    watch.turn_began(1.0)
    watch.hold(2.0)
    watch.hold(3.0)
    watch.release(50.0)
    assert watch.expired(1000.0) is None
    watch.release(102.0)
    watch.heard(103.0)
    assert (watch.expired(104.9), watch.expired(105.0)) == (None, STALL)
    watch.heard(105.9)
    assert (watch.expired(105.9), watch.expired(106.0)) == (None, TURN)
    watch.turn_ended()
    watch.heard(108.0)
    assert (watch.expired(108.9), watch.expired(109.0)) == (None, ATTEMPT)


@pytest.mark.parametrize("left_ms", [3000, 20_000])
def test_a_clock_over_more_than_the_attempt_stands_for_nobody(left_ms: int) -> None:
    watch = Watch(now_s=0, attempt_ms=9000, turn_ms=5000, stall_ms=2000, left=("campaign", left_ms))
    watch.hold(1.0)
    assert (watch.expired(left_ms / 1000 - 0.1), watch.expired(left_ms / 1000)) == (
        None,
        ClockExpiry(clock="campaign", limit_ms=left_ms),
    )


@pytest.mark.parametrize(("left_ms", "first"), [(8999, ClockExpiry(clock="mission", limit_ms=8999)), (9000, ATTEMPT)])
def test_of_the_clocks_round_an_attempt_the_one_that_ran_out_first_counts(left_ms: int, first: ClockExpiry) -> None:
    watch = Watch(now_s=0, attempt_ms=9000, turn_ms=5000, stall_ms=2000, left=("mission", left_ms))
    assert watch.expired(100.0) == first


@given(st.lists(st.integers(0, 4000), max_size=8), st.integers(0, 20_000))
def test_a_stall_is_a_silence_of_at_least_its_limit(heard_ms: list[int], now_ms: int) -> None:
    watch = Watch(now_s=0, attempt_ms=10**9, turn_ms=10**9, stall_ms=2000)
    for at_ms in heard_ms:
        watch.heard(at_ms / 1000)
    silence_ms = now_ms - max([0, *heard_ms])
    fired = watch.expired(now_ms / 1000)
    # A millisecond around the limit is left to how fractions are spelled.
    if silence_ms > 2000:
        assert fired == STALL
    elif silence_ms < 2000:
        assert fired is None


# ── work under it ──


class Watched:
    """Some work under a watch with a fake clock."""

    def __init__(self, *, stall_ms: int = 10**9, attempt_ms: int = 10**9) -> None:
        self.clock = FakeClock()
        self.watch = Watch(now_s=0, attempt_ms=attempt_ms, turn_ms=10**9, stall_ms=stall_ms)
        self.stop = anyio.Event()
        self.failure: ProctorError | None = None
        self.heard_s = 0.0
        self.told: list[Any] = []
        self.pauses_s: list[float] = []
        self.evidence_bytes = 0
        self.is_told = anyio.Event()

    def on_stop(self, cause: Stop) -> None:
        self.told.append(cause)
        self.is_told.set()

    async def go(self, work: Callable[[], Awaitable[None]]) -> list[Any]:
        """What was told of how it ended."""
        await under_watch(
            work,
            self.watch,
            clock=self.clock,
            heard_s=lambda: self.heard_s,
            evidence_bytes=lambda: self.evidence_bytes,
            failure=lambda: self.failure,
            stop=self.stop,
            on_stop=self.on_stop,
            on_pause=self.pauses_s.append,
        )
        return self.told


async def for_ever() -> None:
    await anyio.Event().wait()


async def no_time_at_all() -> None:
    return


def test_work_that_ends_by_itself_is_not_told_of() -> None:
    assert run(lambda: Watched().go(no_time_at_all)) == []


def test_what_the_work_raised_is_told() -> None:
    gone = HangupError("peer.hangup", "gone")

    async def hang_up() -> None:
        raise gone

    assert run(lambda: Watched().go(hang_up)) == [gone]


def test_what_nobody_foresaw_is_raised() -> None:
    async def fault() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as found:
        run(lambda: Watched().go(fault))
    assert [type(error) for error in found.value.exceptions] == [ZeroDivisionError]


def test_a_clock_that_runs_out_ends_the_work() -> None:
    async def test() -> list[Any]:
        watched = Watched(attempt_ms=1000)
        watched.clock.advance(1.0)
        return await watched.go(for_ever)

    assert run(test) == [ClockExpiry(clock="attempt", limit_ms=1000)]


@pytest.mark.long
def test_silence_ends_the_work_and_what_is_heard_keeps_it_going() -> None:
    async def test() -> tuple[float, list[Any]]:
        watched = Watched(stall_ms=300)

        async def work() -> None:
            # The agent speaks for two limits, then no more.
            while True:
                await anyio.sleep(0.02)
                watched.clock.advance(0.02)
                if watched.clock.steady_s() < 0.6:
                    watched.heard_s = watched.clock.steady_s()

        told = await watched.go(work)
        return watched.clock.steady_s() - watched.heard_s, told

    silence_s, told = run(test)
    assert told == [ClockExpiry(clock="stall", limit_ms=300)]
    assert silence_s >= 0.3


@pytest.mark.long
def test_a_tick_that_comes_too_late_does_not_count_as_the_agents_silence() -> None:
    async def test() -> list[Any]:
        watched = Watched(stall_ms=2000, attempt_ms=60_000)

        async def work() -> None:
            # Our own event loop was away for half a minute in the middle of a tick; then time goes on as usual.
            await anyio.sleep(TICK_S / 2)
            watched.clock.advance(30.0)
            while watched.clock.steady_s() < 31.0:
                await anyio.sleep(TICK_S)
                watched.clock.advance(LAG_S / 2)

        return await watched.go(work)

    assert run(test) == []


def test_being_asked_to_stop_ends_the_work_and_is_no_clock() -> None:
    async def test() -> list[Any]:
        watched = Watched()

        async def work() -> None:
            watched.stop.set()
            await for_ever()

        return await watched.go(work)

    assert run(test) == [ClockExpiry(clock=None)]


def test_a_record_that_cannot_be_kept_ends_the_work() -> None:
    full = MachineError("machine.disk-full", "No space left on device")

    async def test() -> list[Any]:
        watched = Watched()
        watched.failure = full
        return await watched.go(for_ever)

    assert run(test) == [full]


def test_an_error_while_the_work_is_being_ended_does_not_hide_what_ended_it() -> None:
    async def test() -> list[Any]:
        watched = Watched()
        watched.stop.set()

        async def work() -> None:
            try:
                await for_ever()
            finally:
                raise HangupError("peer.hangup", "went away meanwhile")

        return await watched.go(work)

    assert run(test) == [ClockExpiry(clock=None)]


def test_the_cause_is_told_before_the_work_is_cut_off() -> None:
    async def test() -> list[Any]:
        watched = Watched()
        watched.stop.set()

        async def work() -> None:
            try:
                await for_ever()
            finally:
                watched.told.append("cut off")

        return await watched.go(work)

    assert run(test) == [ClockExpiry(clock=None), "cut off"]


def test_a_clock_that_runs_out_while_the_end_is_cleaned_up_is_told_and_does_not_cut_that_short() -> None:
    async def test() -> list[Any]:
        watched = Watched(attempt_ms=1000)

        async def work() -> None:
            watched.clock.advance(1.0)
            with anyio.CancelScope(shield=True):
                await watched.is_told.wait()
            raise HangupError("peer.hangup", "gone by then")

        return await watched.go(work)

    assert run(test) == [ClockExpiry(clock="attempt", limit_ms=1000)]


def test_cancelling_whoever_waits_passes_through() -> None:
    async def test() -> tuple[bool, list[str]]:
        ended: list[str] = []

        async def work() -> None:
            try:
                await for_ever()
            finally:
                ended.append("cancelled")

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def watching() -> None:
                    await Watched().go(work)
                    ended.append("returned")

                tasks.start_soon(watching)
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        return scope.cancelled_caught, ended

    assert run(test) == (True, ["cancelled"])
