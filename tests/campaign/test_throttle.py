"""How limits shrink and regrow after refusals, when a quota is waited for and when not."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.campaign.schedule import ALL
from proctor.campaign.throttle import LONGEST_PARK_S, LONGEST_PAUSE_S, PARK_FACTOR, growing_pause_s
from proctor.evidence.live import LiveLimit
from tests.campaign.jobs import PROVIDER, QUOTA, RATE, WELL, job, jobs, level, names, refusal, scheduler, started


@given(
    first_s=st.floats(min_value=0.001, max_value=100),
    n=st.integers(0, 2000),
    seed=st.integers(),
    who=st.text(max_size=9),
)
def test_a_pause_is_up_to_half_as_long_again_as_doubling_says_and_never_longer_than_the_longest(
    first_s: float, n: int, seed: int, who: str
) -> None:
    pause_s = growing_pause_s(first_s, n, longest_s=300, seed=seed, who=who)
    doubled_s = first_s * 2.0 ** min(n, 40)
    assert min(300, doubled_s) <= pause_s <= min(300, 1.5 * doubled_s)
    assert pause_s == growing_pause_s(first_s, n, longest_s=300, seed=seed, who=who)


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
    mine = job("mine", flow="mine", keys=("runtime:s", PROVIDER, "credential:mine"))
    yours = job("yours", flow="yours", keys=("runtime:s", PROVIDER, "credential:yours"))

    def shut_by(code: str) -> list[str]:
        made = scheduler(mine, yours)
        made.ended(started(made, now_s=0)[0], refusal(code, retry_after_s=5), tries=0, now_s=0)
        return [limit.key for limit in made.picture(now_s=0, wall_ms=0) if limit.until_ms is not None]

    assert shut_by(RATE) == shut_by(QUOTA) == ["credential:mine"]
    assert shut_by("provider.overloaded") == [PROVIDER]
    assert shut_by("peer.overloaded") == ["runtime:s"]


def test_whose_limits_are_not_known_slow_everything_down() -> None:
    made = scheduler(job("a", keys=()), job("b", keys=()), job("c", keys=()), parallel=2)
    made.ended(started(made, now_s=0)[0], refusal(RATE, retry_after_s=5), tries=0, now_s=0)
    assert made.wake_s(0) is None, "one may run, and one does"
    assert level(made, ALL) == 1


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
    assert (made.wake_s(now_s), len(made.left)) == (None, 40 - len(at) - 1)


def test_a_window_that_opens_too_late_is_not_waited_for() -> None:
    made = scheduler(*jobs(3), parallel=1, longest_wait_s=60)
    [tried] = started(made, now_s=0)
    assert made.ended(tried, refusal(QUOTA, retry_after_s=61), tries=0, now_s=0) is None
    assert (made.given_up, names(made.left), made.wake_s(0)) == ({PROVIDER: QUOTA}, ["f1", "f2"], None)
    made.add(tried)
    assert names(made.left) == ["f1", "f2", "f0"]
    told = f"{PROVIDER} stayed unavailable ({QUOTA}): the unfinished trials that need it are left for a resume"
    assert list(made.warnings()) == [told]
    [limit] = made.picture(now_s=0, wall_ms=0)[1:]
    assert limit == LiveLimit(key=PROVIDER, maximum=1, current_maximum=0, taken=0, why=QUOTA)


def test_a_trial_that_is_refused_while_others_are_served_is_asked_for_ever_more_seldom_and_given_up() -> None:
    made, now_s, asked = scheduler(job("vain"), *jobs(400), parallel=1, longest_wait_s=3600), 0.0, []
    while (next_ := made.start(now_s)) is not None:
        if next_.trial != "vain":
            made.ended(next_, WELL, tries=0, now_s=now_s)
        else:
            asked.append(now_s)
            at_s = made.ended(next_, refusal(RATE, retry_after_s=0), tries=0, now_s=now_s)
            if at_s is not None:
                made.add(next_, not_before_s=at_s)
        now_s = max(now_s + 10, made.wake_s(now_s) or 0)
    assert made.wake_s(now_s) is None, "nothing waits"
    assert len(asked) < 25
    assert asked[-1] >= 3600
    assert made.given_up == {"trial:vain": RATE}


def test_only_time_that_was_waited_counts_as_waiting() -> None:
    made = scheduler(job("a"), longest_wait_s=60)
    for n in range(30):
        [long] = started(made, now_s=1000.0 * n)
        at_s = made.ended(long, refusal(RATE, retry_after_s=1), tries=0, now_s=1000.0 * n + 900)
        if at_s is None:
            break
        made.add(long, not_before_s=at_s)
    assert 5 <= n <= 8, "it was asked for again after pauses of 1, 2, 4, 8 … seconds, and they come to a minute"


def test_one_wait_that_many_are_told_of_is_no_reason_to_give_up() -> None:
    made = scheduler(*jobs(8), longest_wait_s=60)
    running = started(made, now_s=0)
    due = {made.ended(each, refusal(QUOTA, retry_after_s=60), tries=0, now_s=n) for n, each in enumerate(running)}
    assert (due, made.given_up) == (set(range(60, 68)), {})


def test_who_was_served_has_all_its_patience_again() -> None:
    made, now_s = scheduler(*jobs(6), parallel=1, longest_wait_s=60), 0.0
    for _ in range(3):
        [refused] = started(made, now_s=now_s)
        assert made.ended(refused, refusal(RATE, retry_after_s=50), tries=0, now_s=now_s) == now_s + 50
        now_s += 50
        [served] = started(made, now_s=now_s)
        made.ended(served, WELL, tries=0, now_s=now_s)
    assert made.given_up == {}
