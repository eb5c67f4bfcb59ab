"""The statistics, checked with scipy and statsmodels. These are slow to import, so only their tests do it."""

import math
from fractions import Fraction
from itertools import product

import pytest

from proctor.report.stats import Differences, clustered_interval, count_differences, pass_all, pass_at, wilson

EXACT = 1e-9
RATES = [(passed, tries) for tries in (1, 2, 4, 7, 20, 263) for passed in range(tries + 1)] + [(4711, 10_000)]
SPLITS = [*product(range(0, 25, 3), repeat=2), (0, 6), (1, 8), (81, 263), (4000, 4500)]


def one_repeat(only_first: int, only_second: int, alike: int) -> Differences:
    tables = {((1, 1, 1, 0),): only_first, ((1, 0, 1, 1),): only_second, ((1, 1, 1, 1),): alike}
    return count_differences({table: number for table, number in tables.items() if number})


@pytest.mark.long
@pytest.mark.trust
@pytest.mark.requirement("surface.stats")
def test_wilson_is_that_of_statsmodels_and_scipy() -> None:
    from scipy.stats import binomtest
    from statsmodels.stats.proportion import proportion_confint

    for passed, tries in RATES:
        found = wilson(passed, tries)
        assert found == pytest.approx(proportion_confint(passed, tries, method="wilson"), rel=0, abs=EXACT)
        other = binomtest(passed, tries).proportion_ci(method="wilson")
        assert found == pytest.approx((other.low, other.high), rel=0, abs=EXACT)
        by_mission = clustered_interval([(1, 1)] * passed + [(1, 0)] * (tries - passed))
        assert by_mission == pytest.approx((other.low, other.high), rel=0, abs=EXACT)


@pytest.mark.long
@pytest.mark.trust
@pytest.mark.requirement("surface.stats")
def test_mcnemar_is_that_of_statsmodels_and_scipy() -> None:
    from scipy.stats import binomtest
    from statsmodels.stats.contingency_tables import mcnemar

    for one, other in SPLITS:
        found = one_repeat(one, other, 3).p()
        assert found == pytest.approx(mcnemar([[0, one], [other, 0]], exact=True).pvalue, rel=EXACT, abs=EXACT)
        if one + other:
            assert found == pytest.approx(binomtest(one, one + other).pvalue, rel=EXACT, abs=EXACT)


@pytest.mark.long
@pytest.mark.trust
@pytest.mark.requirement("surface.stats")
def test_pass_at_k_is_that_of_scipy() -> None:
    """Drawing k of the tries without replacement: the hypergeometric distribution."""
    from scipy.special import comb
    from scipy.stats import hypergeom

    for (passed, tries), k in product(RATES, (1, 2, 3, 5, 10, 100)):
        found = pass_at(k, passed=passed, tries=tries), pass_all(k, passed=passed, tries=tries)
        if k > tries:
            assert found == (None, None)
            continue
        draws = comb(tries, k, exact=True)
        exact = [Fraction(comb(of, k, exact=True), draws) for of in (tries - passed, passed)]
        assert found == pytest.approx((float(1 - exact[0]), float(exact[1])), rel=0, abs=EXACT)
        none, every = hypergeom.pmf((0, k), tries, passed, k)
        assert found == pytest.approx((1 - none, every), rel=0, abs=EXACT)


@pytest.mark.long
@pytest.mark.trust
@pytest.mark.requirement("surface.stats")
@pytest.mark.parametrize(("first", "second", "alike"), [(1, 7, 13), (7, 1, 13), (0, 5, 95), (3, 3, 4), (40, 25, 35)])
def test_interval_of_a_difference_is_tangos_with_one_result_per_mission(first: int, second: int, alike: int) -> None:
    """Tango (1998), with his closed form of the restricted estimate, solved by scipy."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    pairs, mean = first + second + alike, (second - first) / (first + second + alike)

    def distance(difference: float) -> float:
        b = (2 * pairs - second + first) * difference - first - second
        c = -first * difference * (1 - difference)
        restricted = (math.sqrt(b * b - 8 * pairs * c) - b) / (4 * pairs)
        variance = pairs * (2 * restricted + difference * (1 - difference))
        return float(pairs * abs(mean - difference) / math.sqrt(variance) - norm.ppf(0.975))

    low, high = (brentq(distance, mean, end, xtol=1e-14) for end in (-1 + 1e-12, 1 - 1e-12))
    found = one_repeat(first, second, alike).interval(p=0.0 if low > 0 or high < 0 else 1.0)
    assert found == pytest.approx((low, high), rel=0, abs=EXACT)


@pytest.mark.long
def test_comparison_of_ten_thousand_missions_is_exact() -> None:
    from scipy.stats import binomtest

    found = one_repeat(4000, 4500, 1500)
    assert found.p() == pytest.approx(binomtest(4000, 8500).pvalue, rel=1e-6)
    assert found.interval(p=found.p()) == pytest.approx((0.0319, 0.0681), abs=5e-4)
