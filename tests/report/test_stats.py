"""What statistics promise, whatever is counted."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.report import stats
from proctor.report.stats import (
    FEWEST_MISSIONS,
    SIGNIFICANT,
    clustered_interval,
    count_differences,
    pass_all,
    pass_at,
    sign_test,
    wilson,
)

of_many = st.integers(1, 400).flatmap(lambda tries: st.tuples(st.integers(0, tries), st.just(tries)))
of_few = st.integers(1, 7).flatmap(lambda tries: st.tuples(st.integers(0, tries), st.just(tries)))
counts = st.integers(0, 60)
results = st.integers(1, 6).flatmap(lambda scored: st.tuples(st.just(scored), st.integers(0, scored)))
tables = st.lists(st.tuples(results, results).map(lambda both: ((*both[0], *both[1]),)), min_size=1, max_size=40)
EXACT = 1e-9


@pytest.mark.requirement("surface.stats")
@given(of_many)
def test_interval_clustered_by_mission_is_wilson_with_one_result_per_mission(of: tuple[int, int]) -> None:
    passed, tries = of
    found = clustered_interval([(1, 1)] * passed + [(1, 0)] * (tries - passed))
    assert found == pytest.approx(wilson(passed, tries), rel=0, abs=EXACT)


@pytest.mark.requirement("surface.stats")
@given(of_many)
def test_wilson_contains_the_rate_and_is_the_mirror_of_that_of_failures(of: tuple[int, int]) -> None:
    passed, tries = of
    low, high = wilson(passed, tries) or (math.nan, math.nan)
    assert 0 <= low <= passed / tries <= high <= 1
    assert low < high
    mirrored = wilson(tries - passed, tries)
    assert mirrored is not None
    assert (low, high) == pytest.approx((1 - mirrored[1], 1 - mirrored[0]))


@given(of_many)
def test_wilson_is_narrower_for_more_of_the_same(of: tuple[int, int]) -> None:
    one, more = wilson(*of), wilson(10 * of[0], 10 * of[1])
    assert one is not None
    assert more is not None
    assert more[1] - more[0] < one[1] - one[0]


@given(st.lists(results, min_size=1, max_size=30))
def test_interval_clustered_by_mission_contains_the_rate(missions: list[tuple[int, int]]) -> None:
    scored, passed = map(sum, zip(*missions, strict=True))
    low, high = clustered_interval(missions) or (math.nan, math.nan)
    assert 0 <= low <= passed / scored + EXACT
    assert passed / scored - EXACT <= high <= 1
    assert low < high


@pytest.mark.trust
def test_interval_of_a_rate_is_not_narrowed_by_repeats_of_missions_that_always_or_never_pass() -> None:
    once = clustered_interval([(1, 1)] * 3 + [(1, 0)])
    often = clustered_interval([(50, 50)] * 3 + [(50, 0)])
    assert once == pytest.approx(often)
    assert once == pytest.approx(wilson(3, 4))


def test_of_nothing_there_is_no_rate_and_no_interval() -> None:
    nothing = count_differences({})
    assert (wilson(0, 0), clustered_interval([]), clustered_interval([(0, 0)])) == (None, None, None)
    assert (nothing.mean(0), nothing.interval(p=1.0), nothing.p()) == (None, None, 1.0)


@pytest.mark.requirement("surface.stats")
@given(of_few, st.integers(1, 7))
def test_pass_at_k_and_pass_all_k_are_what_drawing_gives(of: tuple[int, int], k: int) -> None:
    passed, tries = of
    draws = list(itertools.combinations([True] * passed + [False] * (tries - passed), k))
    if not draws:
        assert pass_at(k, passed=passed, tries=tries) is None
        assert pass_all(k, passed=passed, tries=tries) is None
        return
    assert pass_at(k, passed=passed, tries=tries) == float(Fraction(sum(map(any, draws)), len(draws)))
    assert pass_all(k, passed=passed, tries=tries) == float(Fraction(sum(map(all, draws)), len(draws)))


@pytest.mark.long
@pytest.mark.trust
@pytest.mark.requirement("surface.stats")
@settings(max_examples=100)
@given(tables)
def test_interval_of_a_difference_never_contradicts_the_test(found: list[stats.MissionTable]) -> None:
    forward = count_differences(Counter(found))
    backward = count_differences(Counter((row[0][2:] + row[0][:2],) for row in found))
    p, mean = forward.p(), forward.mean(forward.second - forward.first)
    low, high = forward.interval(p=p) or (math.nan, math.nan)
    assert mean is not None
    assert -1 <= low <= mean + EXACT
    assert mean - EXACT <= high <= 1
    assert (low >= 0 or high <= 0) if p < SIGNIFICANT else low <= 0 <= high
    assert backward.p() == p
    assert backward.interval(p=p) == pytest.approx((-high, -low), abs=EXACT)


@pytest.mark.trust
@given(tables)
def test_interval_of_a_difference_ends_at_its_estimate_only_at_the_limit(found: list[stats.MissionTable]) -> None:
    differences = count_differences(Counter(found))
    mean = differences.mean(differences.second - differences.first)
    assert mean is not None
    low, high = differences.interval(p=differences.p()) or (math.nan, math.nan)
    assert mean == -1 or low < mean - 1e-3
    assert mean == 1 or high > mean + 1e-3


def test_mcnemar_never_rejects_what_tango_contains() -> None:
    """So that the interval of one repeat is never cut off at 0, only extended to it."""
    for first in range(200):
        second = next(second for second in itertools.count(first) if sign_test(first, second) < SIGNIFICANT)
        assert (second - first) ** 2 > 1.96**2 * (first + second)


@settings(max_examples=50)
@given(tables.map(lambda found: found[:7]))
def test_sign_flip_test_is_what_all_signs_give(found: list[stats.MissionTable]) -> None:
    differences = [60 * row[0][3] // row[0][2] - 60 * row[0][1] // row[0][0] for row in found]
    sums = [
        abs(sum(sign * each for sign, each in zip(signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    expected = sum(each >= abs(sum(differences)) for each in sums) / len(sums)
    assert count_differences(Counter(found)).p() == expected


def test_sign_flip_test_never_finds_a_difference_in_too_few_missions() -> None:
    few, enough = (count_differences({((9, 9, 9, 0),): n - 1, ((9, 9, 9, 1),): 1}) for n in (FEWEST_MISSIONS - 1, 6))
    assert few.p() >= SIGNIFICANT > enough.p()


def test_sign_flip_test_of_many_missions_agrees_with_the_normal_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    found = count_differences({((3, 1, 3, 2),): 320, ((3, 2, 3, 1),): 300, ((3, 0, 3, 2),): 60, ((3, 2, 3, 0),): 45})
    exact = found.p()
    monkeypatch.setattr(stats, "_MAX_BITS", 0)
    assert found.p() == pytest.approx(exact, abs=0.01)
    assert found.p() != exact


def test_sign_flip_test_copes_with_numbers_of_results_that_have_no_small_common_multiple() -> None:
    scored = (7, 11, 13, 17, 19, 23, 29)
    worse = count_differences({((each, each, each, 1),): 1 for each in scored})
    assert worse.scale == math.prod(scored)
    assert worse.p() == 2 / 2 ** len(scored)


@pytest.mark.trust
def test_repeats_are_not_paired_with_each_other() -> None:
    """Each mission counts once, in whatever order its repeats passed: 40 results of 4 missions are 4 missions."""
    found = count_differences({((10, 10, 10, 0),): 4})
    assert (found.count, found.worse, found.p()) == (4, 4, 0.125)
    low, high = found.interval(p=0.125) or (math.nan, math.nan)
    assert (low, high) == (-1, 0)


def test_interval_of_sides_without_a_difference_is_as_wide_as_what_was_not_observed() -> None:
    """The rule of three, roughly: up to 16 % of such missions may differ, although none of these 20 did."""
    for repeats in (1, 3, 50):
        found = count_differences({((repeats, repeats, repeats, repeats),): 12, ((repeats, 0, repeats, 0),): 8})
        assert found.interval(p=found.p()) == pytest.approx((-0.1611, 0.1611), abs=1e-4)


def test_flows_of_a_mission_count_as_one_mission() -> None:
    found = count_differences({((1, 1, 1, 0), (2, 2, 2, 2)): 1, ((1, 0, 1, 0), (1, 0, 1, 1)): 2})
    assert (found.count, found.better, found.worse) == (3, 2, 1)
    assert (found.mean(found.first), found.mean(found.second)) == (1 / 3, 0.5)


@given(counts, counts)
def test_sign_test_is_symmetric_and_never_above_1(one: int, other: int) -> None:
    assert sign_test(one, other) == sign_test(other, one)
    assert 0 < sign_test(one, other) <= 1
    assert sign_test(one, one) == 1
