"""What statistics promise, whatever is counted."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.report.stats import (
    CONFIDENCE,
    Paired,
    at_most,
    clopper_pearson,
    paired,
    pass_all,
    pass_at,
    sign_test,
    wilson,
)

of_many = st.integers(1, 400).flatmap(lambda tries: st.tuples(st.integers(0, tries), st.just(tries)))
of_few = st.integers(1, 7).flatmap(lambda tries: st.tuples(st.integers(0, tries), st.just(tries)))


@pytest.mark.requirement("surface.stats")
@given(of_many)
def test_an_interval_holds_the_rate_and_is_the_mirror_of_that_of_failures(of: tuple[int, int]) -> None:
    passed, tries = of
    for interval in (wilson(passed, tries), clopper_pearson(passed, tries)):
        assert interval is not None
        low, high = interval
        assert 0 <= low <= passed / tries <= high <= 1
        assert low < high
    mirrored = wilson(tries - passed, tries)
    assert mirrored is not None
    assert wilson(passed, tries) == pytest.approx((1 - mirrored[1], 1 - mirrored[0]))


@given(of_many)
def test_more_of_the_same_makes_an_interval_narrower(of: tuple[int, int]) -> None:
    one, more = wilson(*of), wilson(10 * of[0], 10 * of[1])
    assert one is not None
    assert more is not None
    assert more[1] - more[0] < one[1] - one[0]


def test_of_nothing_there_is_no_rate_and_no_interval() -> None:
    nothing = paired([])
    assert (wilson(0, 0), nothing.difference, nothing.interval, nothing.p) == (None, None, None, 1.0)


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


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.01, 0.99))
def test_a_tail_is_the_sum_of_its_terms(k: int, n: int, chance: float) -> None:
    terms = [math.comb(n, i) * chance**i * (1 - chance) ** (n - i) for i in range(min(k, n) + 1)]
    assert at_most(k, n, chance) == pytest.approx(math.fsum(terms), abs=1e-12)


counts = st.integers(0, 60)


@pytest.mark.requirement("surface.stats")
@settings(max_examples=60)
@given(counts, counts, counts, counts)
def test_a_difference_is_significant_just_where_its_interval_leaves_nought_out(
    both: int, first: int, second: int, neither: int
) -> None:
    found = Paired(both=both, only_first=first, only_second=second, neither=neither)
    swapped = Paired(both=both, only_first=second, only_second=first, neither=neither)
    if found.interval is None or found.difference is None or swapped.interval is None:
        assert found.pairs == 0
        return
    low, high = found.interval
    assert low <= found.difference <= high
    assert (low > 0 or high < 0) is (found.p < 1 - CONFIDENCE)
    assert found.p == swapped.p
    assert (low, high) == pytest.approx((-swapped.interval[1], -swapped.interval[0]))


def test_where_no_pair_differs_the_interval_is_as_wide_as_what_might_still_differ() -> None:
    alike = Paired(both=6, only_first=0, only_second=0, neither=4)
    assert alike.difference == 0
    assert alike.interval == pytest.approx((-0.3085, 0.3085), abs=1e-4)


@given(counts, counts)
def test_a_split_is_as_likely_either_way_and_never_more_than_certain(one: int, other: int) -> None:
    assert sign_test(one, other) == sign_test(other, one)
    assert 0 < sign_test(one, other) <= 1
    assert sign_test(one, one) == 1


def test_ten_thousand_pairs_are_no_trouble() -> None:
    found = Paired(both=1000, only_first=4000, only_second=4500, neither=500)
    assert found.interval is not None
    assert found.interval == pytest.approx((0.0319, 0.0681), abs=5e-4)
    assert found.p == pytest.approx(6.2e-8, rel=0.05)
