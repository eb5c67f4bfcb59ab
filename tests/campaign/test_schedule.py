"""The scheduler by example: who goes first, when a trial is tried again, and what it all costs."""

import sys
from collections import Counter
from types import FrameType

import pytest

from proctor.campaign.schedule import ALL, AttemptEnd, Scheduler
from proctor.campaign.throttle import LONGEST_PAUSE_S
from proctor.evidence.live import LiveLimit
from proctor.plan.recover import Remedy
from tests.campaign.jobs import PROVIDER, QUOTA, RATE, WELL, job, jobs, names, refusal, scheduler, started


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
def test_a_full_runtime_keeps_nobody_else_waiting() -> None:
    made = Scheduler({ALL: 4, "runtime:s": 1})
    for each in (*[job(f"s{n}", flow="s", keys=("runtime:s",)) for n in range(3)], *jobs(2, flow="o")):
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
    for _ in range(3):
        assert len(started(made, now_s=now_s)) == 1
        at.append(now_s)
        assert made.start(now_s + 0.49) is None
        now_s = made.wake_s(now_s) or now_s
    assert at == [10.0, 10.5, 11.0]


# ── retries ──


def test_pauses_before_retries_double_differ_by_trial_and_are_the_same_another_time() -> None:
    def pauses(name: str) -> list[float]:
        made, found = scheduler(), []
        for tries in (0, 1, 2, 50):
            made.add(job(name))
            [again] = started(made, now_s=0)
            found.append(made.ended(again, AttemptEnd(remedy=Remedy.AGAIN), tries=tries, now_s=0) or 0)
        return found

    here, there = pauses("here"), pauses("there")
    for tries, pause_s in enumerate(here[:3]):
        assert 2 * 2**tries <= pause_s < 3 * 2**tries
    assert here[3] == LONGEST_PAUSE_S
    assert here[:3] != there[:3]
    assert pauses("here") == here


def test_a_retry_comes_when_it_was_told_to_and_after_the_longest_wait_at_the_latest() -> None:
    def again(told_s: float) -> float | None:
        made = scheduler(job("a"), longest_wait_s=60)
        [failed] = started(made, now_s=5)
        return made.ended(failed, AttemptEnd(remedy=Remedy.AGAIN, retry_after_s=told_s), tries=0, now_s=5)

    assert again(0) == again(1), "its own pause is longer"
    assert (again(50), again(60), again(1e9)) == (55, 65, 65)


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
        at_s = made.ended(again, AttemptEnd(remedy=Remedy.AGAIN), tries=0, now_s=now_s)
        assert at_s is not None
        return round(at_s - now_s, 6)

    assert first_pause(0) == first_pause(9)


def test_a_trial_that_was_cut_off_is_due_at_once() -> None:
    made = scheduler(job("a"))
    [cut] = started(made, now_s=5)
    assert made.ended(cut, AttemptEnd(remedy=Remedy.REDO), tries=0, now_s=6) == 6


# ── stops ──


def test_a_flow_that_is_stopped_leaves_its_trials_and_the_others_go_on() -> None:
    made = scheduler(*jobs(3, flow="a"), *jobs(3, flow="b"), parallel=4)
    running = started(made, now_s=0)
    stop = AttemptEnd(remedy=Remedy.STOP, code="provider.unauthorized")
    assert made.ended(running[0], stop, tries=0, now_s=0) is None
    assert made.ended(running[2], AttemptEnd(remedy=Remedy.AGAIN), tries=0, now_s=0) is None, "of the same flow"
    assert (made.stopped, names(made.left)) == ({"a": "provider.unauthorized"}, ["a2"])
    assert list(made.warnings()) == [
        "flow `a` was stopped by provider.unauthorized: its unfinished trials are left for a resume"
    ]
    assert names(started(made, now_s=0)) == ["b2"]


# ── for people, and at length ──


def test_the_picture_shows_what_is_configured_and_what_refusals_have_made() -> None:
    made = Scheduler({ALL: 8, "runtime:s": 6})
    for each in [job(f"j{n}", keys=("runtime:s", PROVIDER)) for n in range(9)]:
        made.add(each)
    running = started(made, now_s=100)
    made.ended(running[0], refusal(RATE, retry_after_s=2.5), tries=0, now_s=100)
    assert made.picture(now_s=101, wall_ms=50_000) == (
        LiveLimit(key=ALL, maximum=8, current_maximum=8, taken=5),
        LiveLimit(key="runtime:s", maximum=6, current_maximum=6, taken=5),
        LiveLimit(key=PROVIDER, maximum=8, current_maximum=3, taken=5, until_ms=51_500, why=RATE),
    )


@pytest.mark.requirement("schedule.pool")
def test_a_start_costs_the_same_whether_a_hundred_wait_or_ten_thousand() -> None:
    def calls(waiting: int) -> Counter[str]:
        made = scheduler(*jobs(waiting // 2, flow="a"), *jobs(waiting // 2, flow="b"), parallel=2)
        running, counted = started(made, now_s=0), Counter[str]()

        def count(frame: FrameType, event: str, _: object) -> None:
            # Others may be called at any time, as the garbage collector does.
            if frame.f_globals.get("__name__", "").startswith("proctor."):
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
