"""The scheduler by example: who goes first, how limits shrink and regrow, when a quota is waited for and when not."""

import sys
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from types import FrameType

import pytest

from proctor.campaign.recover import Remedy
from proctor.campaign.schedule import ALL, After, Job, Scheduler
from proctor.campaign.throttle import LONGEST_PARK_S, LONGEST_PAUSE_S, PARK_FACTOR
from proctor.evidence.live import LiveLimit
from proctor.ids import CellId, FlowId

PROVIDER = "provider:p"
WELL = After(remedy=Remedy.NONE)
RATE = "provider.rate-limited"
QUOTA = "provider.usage-limit"


def job(name: str, *, flow: str = "f", keys: tuple[str, ...] = (PROVIDER,), priority: int = 0) -> Job:
    return Job(cell=CellId(name), flow=FlowId(flow), keys=keys, priority=priority)


def scheduler(*jobs: Job, parallel: int = 8, backoff_s: float = 2.0, longest_wait_s: float = 21600.0) -> Scheduler:
    made = Scheduler({ALL: parallel}, backoff_s=backoff_s, longest_wait_s=longest_wait_s, seed=1)
    for each in jobs:
        made.add(each)
    return made


def jobs(count: int, *, flow: str = "f") -> list[Job]:
    return [job(f"{flow}{n}", flow=flow) for n in range(count)]


def started(made: Scheduler, *, now_s: float) -> list[Job]:
    return list(iter(lambda: made.start(now_s), None))


def names(these: Iterable[Job]) -> list[str]:
    return [each.cell for each in these]


def level(made: Scheduler, key: str = PROVIDER) -> float:
    return made.throttle(key).now


def refusal(code: str, *, retry_after_s: float | None = None) -> After:
    remedy = Remedy.PARK if code == QUOTA else Remedy.YIELD
    return After(remedy=remedy, code=code, retry_after_s=retry_after_s)


# ── who goes first ──


@pytest.mark.requirement("schedule.pool")
def test_flows_take_turns_though_one_has_come_first_with_everything() -> None:
    made = scheduler(*jobs(4, flow="a"), *jobs(2, flow="b"), *jobs(1, flow="c"), parallel=7)
    assert names(started(made, now_s=0)) == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]


@pytest.mark.requirement("schedule.pool")
def test_one_place_goes_round_the_flows() -> None:
    made = scheduler(*jobs(3, flow="a"), *jobs(3, flow="b"), *jobs(3, flow="c"), parallel=1)
    order = []
    while (next_ := made.start(0)) is not None:
        order.append(next_)
        made.ended(next_, WELL, tries=0, now_s=0)
    assert names(order) == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


def test_the_flow_that_has_least_goes_first_though_it_had_its_turn_last() -> None:
    made = scheduler(*jobs(4, flow="slow"), parallel=2)
    [first, _] = started(made, now_s=0)
    made.ended(first, WELL, tries=0, now_s=0)
    for each in jobs(3, flow="quick"):
        made.add(each)
    [quick] = started(made, now_s=0)
    made.ended(quick, WELL, tries=0, now_s=1)
    assert names(started(made, now_s=1)) == ["quick1"]


def test_a_higher_priority_goes_first_and_flows_take_turns_within_it() -> None:
    low = [job("low-a", flow="a"), job("low-b", flow="b")]
    high = [job(f"high-{flow}{n}", flow=flow, priority=1) for flow in "ab" for n in range(2)]
    made = scheduler(*low, *high)
    assert names(started(made, now_s=0)) == ["high-a0", "high-b0", "high-a1", "high-b1", "low-a", "low-b"]


@pytest.mark.requirement("schedule.pool")
def test_a_full_strategy_keeps_nobody_else_waiting() -> None:
    made = Scheduler({ALL: 4, "strategy:s": 1})
    for each in (*[job(f"s{n}", flow="s", keys=("strategy:s",)) for n in range(3)], *jobs(2, flow="o")):
        made.add(each)
    first = started(made, now_s=0)
    assert names(first) == ["s0", "o0", "o1"]
    assert made.wake_s(0) is None
    made.leave(first[0])
    assert names(started(made, now_s=0)) == ["s1"], "its place is free though its end is not known"


def test_a_place_is_given_back_once() -> None:
    made = scheduler(*jobs(3), parallel=1)
    [first] = started(made, now_s=0)
    made.leave(first)
    made.leave(first)
    made.ended(first, WELL, tries=0, now_s=0)
    assert names(started(made, now_s=0)) == ["f1"]


def test_starts_keep_their_distance_from_each_other_to_the_point() -> None:
    made = Scheduler({ALL: 8}, start_interval_s=0.5)
    for each in jobs(3):
        made.add(each)
    now_s, at = 10.0, []
    while not made.is_idle:
        assert len(started(made, now_s=now_s)) == 1
        at.append(now_s)
        assert made.start(now_s + 0.49) is None
        now_s = made.wake_s(now_s) or now_s
    assert at == [10.0, 10.5, 11.0]


# ── retries ──


def test_pauses_before_retries_double_differ_by_cell_and_are_the_same_another_time() -> None:
    def pauses(name: str) -> list[float]:
        made, found = scheduler(), []
        for tries in (0, 1, 2, 50):
            made.add(job(name))
            [again] = started(made, now_s=0)
            found.append(made.ended(again, After(remedy=Remedy.AGAIN), tries=tries, now_s=0) or 0)
        return found

    here, there = pauses("here"), pauses("there")
    for tries, pause_s in enumerate(here[:3]):
        assert 2 * 2**tries <= pause_s < 3 * 2**tries
    assert here[3] == LONGEST_PAUSE_S
    assert here[:3] != there[:3]
    assert pauses("here") == here


@pytest.mark.requirement("schedule.rate-limit")
def test_refusals_use_up_no_retry() -> None:
    def first_pause(refusals: int) -> float:
        made, now_s = scheduler(job("a")), 0.0
        for n in range(refusals):
            [again] = started(made, now_s=now_s)
            code = RATE if n % 2 else QUOTA
            at_s = made.ended(again, refusal(code, retry_after_s=1), tries=0, now_s=now_s)
            assert at_s is not None
            made.add(again, not_before_s=at_s)
            now_s = at_s
        [again] = started(made, now_s=now_s)
        at_s = made.ended(again, After(remedy=Remedy.AGAIN), tries=0, now_s=now_s)
        assert at_s is not None
        return round(at_s - now_s, 6)

    assert first_pause(0) == first_pause(9)


def test_a_cell_that_was_cut_off_is_due_at_once() -> None:
    made = scheduler(job("a"))
    [cut] = started(made, now_s=5)
    assert made.ended(cut, After(remedy=Remedy.REDO), tries=0, now_s=6) == 6


# ── rates ──


@pytest.mark.requirement("schedule.rate-limit")
def test_a_refusal_leaves_half_of_those_in_flight_and_nothing_begins_before_its_time() -> None:
    made = scheduler(*jobs(20))
    running = started(made, now_s=0)
    assert made.ended(running[0], refusal(RATE, retry_after_s=3), tries=0, now_s=1) == 4
    assert level(made) == 4
    for each in running[1:]:
        made.ended(each, WELL, tries=0, now_s=1)
    assert started(made, now_s=3.9) == []
    assert made.wake_s(1) == 4
    assert len(started(made, now_s=4)) == 4


@pytest.mark.requirement("schedule.rate-limit")
def test_a_burst_of_refusals_is_one_congestion() -> None:
    made = scheduler(*jobs(8))
    running = started(made, now_s=0)
    for each in running:
        made.leave(each)
    retries = [made.ended(each, refusal(RATE, retry_after_s=3), tries=0, now_s=1) for each in running]
    assert (retries, level(made)) == ([4] * 8, 4)
    made.add(running[0], not_before_s=4)
    [again] = started(made, now_s=4)
    made.ended(again, refusal(RATE), tries=0, now_s=5)
    assert level(made) == 1, "of one in flight"


def test_a_longer_wait_told_late_is_obeyed_and_a_shorter_one_opens_nothing() -> None:
    made = scheduler(*jobs(8))
    first, second, third, *_ = started(made, now_s=0)
    made.ended(first, refusal(RATE, retry_after_s=3), tries=0, now_s=1)
    assert made.ended(second, refusal(RATE, retry_after_s=9), tries=0, now_s=2) == 11
    assert made.ended(third, refusal(RATE, retry_after_s=1), tries=0, now_s=2) == 11
    assert level(made) == 4


def test_half_is_left_of_what_was_admitted_not_of_what_is_still_being_written() -> None:
    made = scheduler(*jobs(40))
    refused, *others = started(made, now_s=0)
    for each in (refused, *others):
        made.leave(each)
    assert len(started(made, now_s=0)) == 8
    made.ended(refused, refusal(RATE, retry_after_s=1), tries=0, now_s=0)
    assert level(made) == 4
    assert (made.throttle(PROVIDER).taken, made.throttle(PROVIDER).unheard) == (8, 15)
    for each in jobs(16)[8:]:
        made.leave(each)
    again = started(made, now_s=1)
    made.ended(again[0], refusal(RATE, retry_after_s=1), tries=0, now_s=1)
    assert (len(again), level(made)) == (4, 2)


@pytest.mark.requirement("schedule.rate-limit")
def test_every_attempt_that_is_served_admits_a_little_more_until_all_is_as_before() -> None:
    made = scheduler(*jobs(60), parallel=4)
    refused, *before = started(made, now_s=0)
    made.ended(refused, refusal(RATE, retry_after_s=0), tries=0, now_s=0)
    for each in before:
        made.ended(each, WELL, tries=0, now_s=1)
    levels = [level(made)]
    while level(made) < 4:
        running = started(made, now_s=1)
        assert len(running) == level(made), "it is used as far as it goes"
        for each in running:
            made.ended(each, WELL, tries=0, now_s=1)
        levels.append(level(made))
    assert levels == [2, 2, 3, 4]
    assert made.throttle(PROVIDER).why is None


@pytest.mark.requirement("schedule.rate-limit")
def test_untold_pauses_grow_until_somebody_is_served() -> None:
    made, now_s, pauses = scheduler(*jobs(30), parallel=1), 0.0, []
    for _ in range(10):
        [tried] = started(made, now_s=now_s)
        at_s = made.ended(tried, refusal("provider.overloaded"), tries=0, now_s=now_s)
        assert at_s is not None
        pauses.append(round(at_s - now_s, 6))
        now_s = at_s
    for n, pause_s in enumerate(pauses):
        assert min(LONGEST_PAUSE_S, 2 * 2**n) <= pause_s <= min(LONGEST_PAUSE_S, 3 * 2**n)
    [well] = started(made, now_s=now_s)
    made.ended(well, WELL, tries=0, now_s=now_s)
    [tried] = started(made, now_s=now_s)
    at_s = made.ended(tried, refusal("provider.overloaded"), tries=0, now_s=now_s)
    assert at_s is not None
    assert at_s - now_s <= 3


def test_what_is_told_but_not_kept_is_not_believed_for_ever() -> None:
    made, now_s = scheduler(*jobs(30), parallel=1), 0.0
    for _ in range(12):
        [tried] = started(made, now_s=now_s)
        at_s = made.ended(tried, refusal(RATE, retry_after_s=0), tries=0, now_s=now_s)
        assert at_s is not None
        now_s = at_s
    assert now_s > 1000


def test_an_account_is_rationed_alone_and_a_provider_for_all_who_use_it() -> None:
    mine = job("mine", flow="mine", keys=("strategy:s", PROVIDER, "credential:mine"))
    yours = job("yours", flow="yours", keys=("strategy:s", PROVIDER, "credential:yours"))

    def shut_by(code: str) -> list[str]:
        made = scheduler(mine, yours)
        made.ended(started(made, now_s=0)[0], refusal(code, retry_after_s=5), tries=0, now_s=0)
        return [limit.key for limit in made.picture(now_s=0, wall_ms=0) if limit.until_ms is not None]

    assert shut_by(RATE) == shut_by(QUOTA) == ["credential:mine"]
    assert shut_by("provider.overloaded") == [PROVIDER]
    assert shut_by("peer.overloaded") == ["strategy:s"]


def test_whose_limits_are_not_known_slow_everything_down() -> None:
    made = scheduler(job("a", keys=()), job("b", keys=()), job("c", keys=()), parallel=2)
    made.ended(started(made, now_s=0)[0], refusal(RATE, retry_after_s=5), tries=0, now_s=0)
    assert made.wake_s(0) is None, "one may run, and one does"
    assert level(made, ALL) == 1


def test_a_key_without_any_limit_never_regrows_above_what_was_too_much() -> None:
    made = Scheduler({})
    for each in jobs(20):
        made.add(each)
    running = started(made, now_s=0)
    assert len(running) == 20
    made.ended(running[0], refusal(RATE, retry_after_s=0), tries=0, now_s=0)
    assert (level(made), made.throttle(PROVIDER).most) == (10, 20)


# ── quotas ──


@pytest.mark.requirement("schedule.rate-limit")
def test_a_quota_shuts_its_key_until_its_window_then_one_goes_to_see() -> None:
    made = scheduler(*jobs(20))
    running = started(made, now_s=0)
    for each in running:
        made.leave(each)
    assert {made.ended(each, refusal(QUOTA, retry_after_s=3600), tries=0, now_s=10) for each in running} == {3610}
    assert (started(made, now_s=3609), made.wake_s(10)) == ([], 3610)
    [trial] = started(made, now_s=3610)
    assert made.wake_s(3610) is None
    made.ended(trial, WELL, tries=0, now_s=3620)
    assert len(started(made, now_s=3620)) == 2


def test_a_parked_key_keeps_no_other_waiting() -> None:
    made = scheduler(*jobs(2, flow="a"), job("b", flow="b", keys=("provider:q",)))
    [first, *_] = started(made, now_s=0)
    made.ended(first, refusal(QUOTA, retry_after_s=3600), tries=0, now_s=0)
    made.add(job("b2", flow="b", keys=("provider:q",)))
    assert names(started(made, now_s=0)) == ["b2"]


@pytest.mark.requirement("schedule.rate-limit")
def test_a_window_that_nobody_tells_of_is_tried_now_and_then_and_given_up_in_the_end() -> None:
    made, now_s, at = scheduler(*jobs(40), parallel=2, longest_wait_s=7200), 0.0, []
    while running := started(made, now_s=now_s):
        for each in running:
            made.ended(each, refusal(QUOTA), tries=0, now_s=now_s)
        at.append(now_s)
        now_s = made.wake_s(now_s) or now_s
    pauses = [round(later - sooner, 6) for sooner, later in pairwise(at)]
    assert at[-1] == 7200, "one last time when there is no more to wait"
    for n, pause_s in enumerate(pauses[:-1]):
        assert pause_s >= min(LONGEST_PARK_S, PARK_FACTOR * 2 * 2**n)
    assert made.given_up == {PROVIDER: QUOTA}
    assert (made.is_idle, made.wake_s(now_s), len(made.left)) == (True, None, 40 - len(at) - 1)


def test_a_window_that_opens_too_late_is_not_waited_for() -> None:
    made = scheduler(*jobs(3), parallel=1, longest_wait_s=60)
    [tried] = started(made, now_s=0)
    assert made.ended(tried, refusal(QUOTA, retry_after_s=61), tries=0, now_s=0) is None
    assert (made.given_up, names(made.left), made.is_idle) == ({PROVIDER: QUOTA}, ["f1", "f2"], True)
    made.add(tried)
    assert names(made.left) == ["f1", "f2", "f0"]
    told = f"{PROVIDER} still said {QUOTA} after the longest wait; cells that are left because of it: 3"
    assert list(made.warnings()) == [told]
    [limit] = made.picture(now_s=0, wall_ms=0)[1:]
    assert limit == LiveLimit(key=PROVIDER, most=1, now=0, taken=0, why=QUOTA)


# ── stops ──


def test_a_flow_that_is_stopped_leaves_its_cells_and_the_others_go_on() -> None:
    made = scheduler(*jobs(3, flow="a"), *jobs(3, flow="b"), parallel=4)
    running = started(made, now_s=0)
    stop = After(remedy=Remedy.STOP, code="provider.unauthorized")
    assert made.ended(running[0], stop, tries=0, now_s=0) is None
    assert made.ended(running[2], After(remedy=Remedy.AGAIN), tries=0, now_s=0) is None, "of the same flow"
    assert (made.stopped, names(made.left)) == ({"a": "provider.unauthorized"}, ["a2"])
    assert list(made.warnings()) == ["flow `a` was stopped by provider.unauthorized; cells of it that are left: 1"]
    assert names(started(made, now_s=0)) == ["b2"]


# ── for people, and at length ──


def test_the_picture_shows_what_is_configured_and_what_refusals_have_made() -> None:
    made = Scheduler({ALL: 8, "strategy:s": 6})
    for each in [job(f"j{n}", keys=("strategy:s", PROVIDER)) for n in range(9)]:
        made.add(each)
    running = started(made, now_s=100)
    made.ended(running[0], refusal(RATE, retry_after_s=2.5), tries=0, now_s=100)
    assert made.picture(now_s=101, wall_ms=50_000) == (
        LiveLimit(key=ALL, most=8, now=8, taken=5),
        LiveLimit(key="strategy:s", most=6, now=6, taken=5),
        LiveLimit(key=PROVIDER, most=8, now=3, taken=5, until_ms=51_500, why=RATE),
    )


@pytest.mark.requirement("schedule.pool")
def test_a_start_costs_the_same_whether_a_hundred_wait_or_ten_thousand() -> None:
    def calls(waiting: int) -> Counter[str]:
        made = scheduler(*jobs(waiting // 2, flow="a"), *jobs(waiting // 2, flow="b"), parallel=2)
        running, counted = started(made, now_s=0), Counter[str]()

        def count(frame: FrameType, event: str, _: object) -> None:
            counted[frame.f_code.co_name] += event == "call"

        sys.setprofile(count)
        try:
            for _ in range(20):
                made.ended(running.pop(0), WELL, tries=0, now_s=0)
                running += started(made, now_s=0)
                made.wake_s(0)
        finally:
            sys.setprofile(None)
        return counted

    assert calls(100) == calls(10_000)
