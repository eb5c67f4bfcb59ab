"""Quotas that are used up when a campaign is taken up again: what is told of them by its attempts so far."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.campaign.schedule import ALL, AttemptEnd, Job, Scheduler
from proctor.campaign.throttle import LONGEST_PAUSE_S
from proctor.campaign.windows import Window, shut_windows
from proctor.event.outcome import Outcome
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId, FlowId, RunId, RuntimeId, TrialId
from proctor.ledger.schema import LedgerAttempt
from proctor.plan.recover import Remedy
from proctor.testing.clock import FakeClock
from tests.campaign.jobs import PROVIDER, QUOTA, RATE, WELL, job, jobs, names, refusal, scheduler, started

CREDENTIAL = "credential:KEY"
LONGEST_MS = 6 * 3600 * 1000
# By the first letter of a trial: `g` has fallen to a runtime that is not here any more.
KEYS = {"f": (PROVIDER, CREDENTIAL), "o": (PROVIDER, "credential:OTHER"), "n": ()}


def keys(tried: LedgerAttempt) -> tuple[str, ...] | None:
    return KEYS.get(tried.trial[0])


def tried(trial: str, *, began: int, ended: int, code: str | None = None, retry_at: int | None = None) -> LedgerAttempt:
    return LedgerAttempt(
        id=AttemptId(f"{trial}.1"), trial=TrialId(trial), n=1, run=RunId("r"), state="sealed", started_at_ms=began,
        ended_at_ms=ended, outcome=Outcome.COMPLETED if code is None else Outcome.FAILED, code=code,
        retry_at_ms=retry_at, runtime_id=RuntimeId("s"),
    )  # fmt: skip


def shut(*rows: LedgerAttempt, now: int = 100, longest: int = LONGEST_MS) -> dict[str, int]:
    return {each.key: each.until_ms for each in shut_windows(rows, keys=keys, now_ms=now, longest_ms=longest)}


PARKED = tried("f1", began=10, ended=50, code=QUOTA, retry_at=500)


@pytest.mark.requirement("schedule.rate-limit")
def test_a_quota_that_was_used_up_is_shut_until_its_window_and_not_after_it() -> None:
    assert list(shut_windows([PARKED], keys=keys, now_ms=499, longest_ms=LONGEST_MS)) == [
        Window(key=CREDENTIAL, until_ms=500, code=QUOTA)
    ]
    assert shut(PARKED, now=500) == {}


def test_whoever_has_none_in_common_with_others_shuts_the_provider_or_all() -> None:
    assert shut(tried("n1", began=10, ended=50, code=QUOTA, retry_at=500)) == {ALL: 500}
    assert shut(tried("g1", began=10, ended=50, code=QUOTA, retry_at=500)) == {}, "whose it was nobody can say"


def test_somebody_who_began_later_and_was_served_opens_it() -> None:
    assert shut(PARKED, tried("f2", began=51, ended=60)) == {}
    assert shut(tried("f2", began=51, ended=60, code="agent.turn-failed"), PARKED) == {}, "whatever it made of it"
    assert shut(PARKED, tried("f2", began=50, ended=60)) == {CREDENTIAL: 500}, "of the time before"
    assert shut(PARKED, tried("o2", began=51, ended=60)) == {CREDENTIAL: 500}, "of another account"
    assert shut(PARKED, tried("f2", began=51, ended=60, code="peer.lost")) == {CREDENTIAL: 500}, "nobody's verdict"


def test_the_last_word_counts_and_of_two_at_once_the_longer() -> None:
    later = tried("f2", began=10, ended=60, code=QUOTA, retry_at=400)
    assert shut(PARKED, later) == shut(later, PARKED) == {CREDENTIAL: 400}
    at_once = tried("f3", began=10, ended=60, code=QUOTA, retry_at=450)
    assert shut(later, at_once) == shut(at_once, later) == {CREDENTIAL: 450}


def test_what_is_no_quota_or_was_given_up_shuts_nothing() -> None:
    assert shut(tried("f1", began=10, ended=50, code=RATE, retry_at=500)) == {}
    assert shut(tried("f1", began=10, ended=50, code="peer.lost", retry_at=500)) == {}
    assert shut(tried("f1", began=10, ended=50, code=QUOTA)) == {}


@pytest.mark.requirement("schedule.rate-limit")
def test_neither_a_clock_that_was_set_back_nor_an_absurd_time_parks_a_campaign() -> None:
    assert shut(PARKED, now=-(10**12)) == {CREDENTIAL: -(10**12) + 450}, "as long as it was told at the time"
    assert shut(tried("f1", began=10, ended=50, code=QUOTA, retry_at=50 + LONGEST_MS)) == {CREDENTIAL: 50 + LONGEST_MS}
    assert shut(tried("f1", began=10, ended=50, code=QUOTA, retry_at=51 + LONGEST_MS)) == {}
    assert shut(tried("f1", began=10, ended=600, code=QUOTA, retry_at=500)) == {}


@pytest.mark.requirement("schedule.rate-limit")
def test_a_key_that_is_found_shut_is_as_one_that_was_shut_here() -> None:
    here, taken_up = scheduler(*jobs(20)), scheduler(*jobs(20))
    for each in started(here, now_s=10):
        here.ended(each, refusal(QUOTA, retry_after_s=3600), tries=0, now_s=10)
    taken_up.shut(PROVIDER, code=QUOTA, for_s=3600, now_s=10)
    picture = LiveLimit(key=PROVIDER, maximum=8, current_maximum=1, taken=0, until_ms=3_600_000, why=QUOTA)
    assert picture in here.picture(now_s=10, wall_ms=0)
    assert picture in taken_up.picture(now_s=10, wall_ms=0)
    assert (started(taken_up, now_s=3609), taken_up.wake_s(10)) == ([], 3610)
    [trial] = started(taken_up, now_s=3610)
    taken_up.ended(trial, WELL, tries=0, now_s=3620)
    assert len(started(taken_up, now_s=3620)) == 2


def test_what_is_found_shut_for_longer_than_a_run_waits_is_waited_for_that_long() -> None:
    made = scheduler(job("a"), longest_wait_s=60)
    made.shut(PROVIDER, code=QUOTA, for_s=90, now_s=0)
    assert (made.given_up, made.wake_s(0)) == ({}, 60)
    [trial] = started(made, now_s=60)
    assert made.ended(trial, refusal(QUOTA), tries=0, now_s=60) is None
    assert made.given_up == {PROVIDER: QUOTA}


def test_a_key_that_is_found_shut_keeps_no_other_waiting() -> None:
    made = scheduler(job("a"), job("b", flow="b", keys=("provider:q",)))
    made.shut(PROVIDER, code=QUOTA, for_s=3600, now_s=0)
    assert names(started(made, now_s=0)) == ["b"]


# ── whatever a run was told ──


def made() -> Scheduler:
    found = Scheduler({ALL: 4}, backoff_s=2, seed=7)
    for name in KEYS:
        for each in range(4):
            found.add(Job(trial=TrialId(f"{name}{each}"), flow=FlowId(name), keys=KEYS[name]))
    return found


@dataclass(slots=True)
class Played:
    """A run under the fake clock, and the rows that its ledger has of it."""

    clock: FakeClock = field(default_factory=FakeClock)
    scheduler: Scheduler = field(default_factory=made)
    rows: list[LedgerAttempt] = field(default_factory=list)
    running: list[tuple[Job, int]] = field(default_factory=list)

    def start(self) -> None:
        now_s, now_ms = self.clock.steady_s(), self.clock.wall_ms()
        self.running += [(each, now_ms) for each in started(self.scheduler, now_s=now_s)]

    def end(self, which: int, after: AttemptEnd) -> None:
        job, began_ms = self.running.pop(which % len(self.running))
        now_s, now_ms = self.clock.steady_s(), self.clock.wall_ms()
        again_s = self.scheduler.ended(job, after, tries=0, now_s=now_s)
        retry_at_ms = None if again_s is None else now_ms + round((again_s - now_s) * 1000)
        self.rows.append(tried(job.trial, began=began_ms, ended=now_ms, code=after.code, retry_at=retry_at_ms))
        if again_s is not None:
            self.scheduler.add(job, not_before_s=again_s)

    def taken_up(self) -> Scheduler:
        again, now_ms = made(), self.clock.wall_ms()
        for window in shut_windows(self.rows, keys=keys, now_ms=now_ms, longest_ms=LONGEST_MS):
            for_s = (window.until_ms - now_ms) / 1000
            again.shut(window.key, code=window.code, for_s=for_s, now_s=self.clock.steady_s())
        return again


told: Any = st.sampled_from([None, 0.0, 1.5, 90.0, 3600.0])
ends = st.one_of(
    st.just(WELL), told.map(lambda told_s: AttemptEnd(remedy=Remedy.PARK, code=QUOTA, retry_after_s=told_s))
)
steps = st.lists(st.tuples(st.sampled_from([0.0, 0.001, 1.0, 40.0, 1800.0]), st.integers(0, 9), ends), max_size=30)


@pytest.mark.requirement("schedule.rate-limit", "campaign.resume")
@given(steps=steps)
def test_whoever_is_killed_and_taken_up_waits_for_what_it_would_have_waited_for(
    steps: list[tuple[float, int, AttemptEnd]],
) -> None:
    run = Played()
    for by_s, which, after in steps:
        run.clock.advance(by_s)
        run.start()
        if run.running:
            run.end(which, after)
    now_s, again = run.clock.steady_s(), run.taken_up()
    for key in (ALL, PROVIDER, CREDENTIAL, "credential:OTHER"):
        here, there = run.scheduler.throttle(key), again.throttle(key)
        if not here.is_given_up:
            # Within the milliseconds that a ledger keeps.
            assert there.shut_until_s >= here.shut_until_s - 0.001 or here.shut_until_s <= now_s + 0.001
            # A trial that is refused again and again waits longer than its quota, and the ledger has what it waits for.
            assert there.shut_until_s <= max(here.shut_until_s, now_s + LONGEST_PAUSE_S) + 0.001
            assert not there.shut_until_s or here.why == there.why
