"""Estimate pass rates with confidence intervals, and compare them. Pure. See docs/explain/statistics.md.

Every interval here is the same score interval of a mean over missions. It is Wilson's for a rate with one result per
mission, and Tango's for a difference with one result per mission and side.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
SIGNIFICANT = 1 - CONFIDENCE
FEWEST_MISSIONS = 6
"""With fewer missions no difference can be significant: random signs agree too often (2 of 2⁵ times)."""

_Z = 1.959963984540054  # the 97.5 % quantile of the normal distribution; `statistics` is slow to import
_MAX_ITERATIONS = 100
_ROUNDING = 1e-14
_FINEST = 1000  # steps between 0 and 1 that the sign-flip test tells apart
_MAX_BITS = 1_000_000_000  # that the exact sign-flip test moves, in less than a tenth of a second

MissionTable = tuple[tuple[int, int, int, int], ...]
"""The results of a mission, for each flow: scored and passed by the first side, scored and passed by the second."""


def wilson(passed: int, scored: int) -> tuple[float, float] | None:
    """Return the Wilson score interval of a pass rate; None if nothing was scored.

    The examples of Newcombe (1998), 81 of 263 and 0 of 20:

    >>> [round(end, 4) for end in wilson(81, 263)], [round(end, 4) for end in wilson(0, 20)]
    ([0.2553, 0.3662], [0.0, 0.1611])
    """
    if not scored:
        return None
    rate, share = passed / scored, _Z * _Z / scored
    middle = (rate + share / 2) / (1 + share)
    half = _Z * math.sqrt(rate * (1 - rate) / scored + share / (4 * scored)) / (1 + share)
    # At 0 and 1, rounding errors would exclude the rate itself.
    return (0.0 if passed == 0 else middle - half, 1.0 if passed == scored else middle + half)


def clustered_interval(missions: Iterable[tuple[int, int]]) -> tuple[float, float] | None:
    """Return the score interval of a pass rate, clustered by mission; None if nothing was scored.

    Takes scored and passed results of each mission. Repeats of a mission make its own rate more certain, and say
    nothing about other missions: twenty passes of one mission are worth less than those of twenty missions. It is
    never narrower than Wilson's interval, as it could be where the rates of few missions happen to be alike.

    >>> [round(end, 4) for end in clustered_interval([(20, 20)])]
    [0.2065, 1.0]
    >>> [round(end, 4) for end in clustered_interval([(1, 1)] * 20)]
    [0.8389, 1.0]
    """
    values = Counter(each for each in missions if each[0])
    if not values:
        return None
    failed = {(scored, scored - passed): number for (scored, passed), number in values.items()}
    low, high = 1 - _upper_end(failed), _upper_end(values)
    scored, passed = (sum(each[at] * number for each, number in values.items()) for at in (0, 1))
    unclustered = wilson(passed, scored) or (low, high)
    return min(low, unclustered[0]), max(high, unclustered[1])


def _upper_end(values: Mapping[tuple[int, int], int]) -> float:
    """Return the upper end of the score interval of a mean, from how many missions have each (weight, sum).

    A mission's value is sum / weight, and at most 1. The end is the largest mean μ with

        missions · (μ - mean)² ≤ z² · V(μ)

    where V(μ) is the variance of the distribution of values that has the mean μ and fits the missions best (the
    empirical likelihood of Owen, 2001). The distribution may contain missions of value 1 even if none was observed.
    In it, a mission of value v has its observed share divided by 1 - κ · weight · (v - μ), with κ = (μ - mean) / V(μ).
    So one equation for κ remains: these shares add up to 1.
    """
    missions = sum(values.values())
    weights = sum(weight * number for (weight, _), number in values.items())
    mean = sum(sum_ * number for (_, sum_), number in values.items()) / weights
    if mean >= 1:
        return 1.0
    slack, terms = _Z * _Z / missions, []
    for (weight, sum_), number in values.items():
        relative = weight * missions / weights
        terms.append((number / missions, 1 + relative * slack, relative * (sum_ / weight - mean)))
    return min(1.0, mean + slack / _find_tilt(terms, highest=(1 + slack) / (1 - mean)))


def _find_tilt(terms: Sequence[tuple[float, float, float]], *, highest: float) -> float:
    """Return the κ > 0 where the sum of share / (offset - κ · slope) reaches 1; the highest κ if it does not.

    The sum is convex in κ and below 1 at 0. Newton's method for 1 / sum, which is nearly linear, within bounds.
    """
    low, high, tilt = 0.0, highest, highest
    for _ in range(_MAX_ITERATIONS):
        total = rise = 0.0
        for share, offset, slope in terms:
            left = offset - tilt * slope
            if left <= 0:
                total = math.inf
                break
            total += share / left
            rise += share / left * slope / left
        if abs(total - 1) < _ROUNDING or (total < 1 and tilt == highest):
            break
        low, high = (low, tilt) if total > 1 else (tilt, high)
        better = tilt - (total - 1) * total / rise if total < math.inf and rise > 0 else math.nan
        tilt = better if low < better < high else (low + high) / 2
    return tilt


def pass_at(k: int, *, passed: int, tries: int) -> float | None:
    """Return pass@k: the chance that at least one of k drawn tries passes. None if there are fewer than k tries.

    The unbiased estimator of Chen et al. (2021).

    >>> pass_at(1, passed=3, tries=10), pass_at(2, passed=1, tries=4), pass_at(3, passed=1, tries=2)
    (0.3, 0.5, None)
    """
    draws = math.comb(tries, k)
    return None if tries < k else (draws - math.comb(tries - passed, k)) / draws


def pass_all(k: int, *, passed: int, tries: int) -> float | None:
    """Return pass^k, unbiased: the chance that all of k drawn tries pass. None if there are fewer than k tries.

    >>> pass_all(1, passed=3, tries=10), pass_all(2, passed=3, tries=4), pass_all(2, passed=1, tries=4)
    (0.3, 0.5, 0.0)
    """
    return None if tries < k else math.comb(passed, k) / math.comb(tries, k)


def sign_test(one: int, other: int) -> float:
    """Return the p-value of the exact two-sided sign test: the chance of a split at least this uneven.

    For the pairs in which only one of the two passes, this is McNemar's exact test.

    >>> sign_test(8, 1), sign_test(0, 6), sign_test(3, 3), sign_test(0, 0)
    (0.0390625, 0.03125, 1.0, 1.0)
    """
    total, ways, tries = 0, 1, one + other
    for at in range(min(one, other) + 1):
        total += ways
        ways = ways * (tries - at) // (at + 1)
    return min(1.0, 2 * total / (1 << tries))


def _count_subsets(sizes: Sequence[int], *, most: int) -> int:
    """Return how many of the subsets of the sizes have a sum of at most `most`.

    >>> _count_subsets([1, 1, 2], most=1), _count_subsets([1, 1, 2], most=4)
    (3, 8)
    """
    # One integer holds the number of subsets by sum, each in as many bits as fit the number of all subsets.
    bits = len(sizes) + 1
    mask, by_sum = (1 << bits * (most + 1)) - 1, 1
    for size in sizes:
        by_sum += (by_sum << bits * size) & mask
    return by_sum % ((1 << bits) - 1)  # adds them up, as the sum of decimal digits is the remainder by 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The differences between two sides by mission: the rate of the second minus the rate of the first."""

    missions: Mapping[int, int]
    """How many missions have each difference, in units of 1 / scale."""
    scale: int
    """1 if each mission has one result on each side; else a common multiple of the numbers of results."""
    first: int
    """Sum of the first side's rates by mission, in the same unit."""
    second: int
    """Sum of the second side's rates by mission, in the same unit."""

    @property
    def count(self) -> int:
        """The number of missions."""
        return sum(self.missions.values())

    @property
    def has_repeats(self) -> bool:
        """Whether a mission has several results on a side."""
        return self.scale > 1

    @property
    def better(self) -> int:
        """Missions that the second side passes more often."""
        return sum(number for units, number in self.missions.items() if units > 0)

    @property
    def worse(self) -> int:
        """Missions that the second side passes less often."""
        return sum(number for units, number in self.missions.items() if units < 0)

    def mean(self, units: int) -> float | None:
        """Return a sum of rates or differences as a mean over the missions; None without a mission."""
        return units / (self.scale * self.count) if self.missions else None

    def p(self) -> float:
        """Return the two-sided p-value of the sign-flip test: how likely is a mean at least as far from 0 by chance?

        If the sides are equally good, each mission's difference is as likely to be negative as positive. With one
        result per mission and side, this is McNemar's exact test. It is exact for any number of missions; only above
        some thousand missions with repeats, the normal distribution takes its place.
        """
        step = max(1, self.scale // _FINEST)
        sizes: Counter[int] = Counter()
        for units, number in self.missions.items():
            sizes[round(units / step)] += number
        total, unit = abs(sum(size * number for size, number in sizes.items())), math.gcd(*sizes)
        flipped = [abs(size) // unit for size, number in sizes.items() if size for _ in range(number)]
        if not total:
            return 1.0
        if max(flipped) == 1:
            return sign_test(*(sum(number for size, number in sizes.items() if size * sign > 0) for sign in (-1, 1)))
        # The sums of both signs differ by the total: the smaller one is at most this.
        most = (sum(flipped) - total // unit) // 2
        if len(flipped) ** 2 * most > _MAX_BITS:
            return math.erfc(total / unit / math.sqrt(2 * sum(size * size for size in flipped)))
        return min(1.0, 2 * _count_subsets(flipped, most=most) / (1 << len(flipped)))

    def interval(self, *, p: float) -> tuple[float, float] | None:
        """Return the confidence interval of the difference; None without a mission.

        It never contradicts p: if p is significant, it is on one side of 0, with 0 as an end at most; else it contains
        0. With one result per mission and side it is Tango's interval (1998), extended to 0 where McNemar's exact test
        does not exclude 0. The example of Fagerland et al. (2014), with the p-values of the score and exact tests:

        >>> children = count_differences({((1, 0, 1, 1),): 1, ((1, 1, 1, 0),): 7, ((1, 0, 1, 0),): 13})
        >>> [round(end, 3) for end in children.interval(p=0.034)], [round(end, 3) for end in children.interval(p=0.070)]
        ([-0.517, -0.026], [-0.517, 0.0])
        """
        if not self.missions:
            return None
        low = -_upper_end({(self.scale, -units): number for units, number in self.missions.items()})
        high = _upper_end({(self.scale, units): number for units, number in self.missions.items()})
        if p >= SIGNIFICANT:
            return min(low, 0.0), max(high, 0.0)
        return (max(low, 0.0), high) if self.second > self.first else (low, min(high, 0.0))


def count_differences(tables: Mapping[MissionTable, int]) -> Differences:
    """Count the differences of missions, from how many missions have each table. All numbers of scored results are > 0.

    Each flow of a mission counts the same, and each mission counts the same. Repeats are not paired: the first repeat
    of one side has nothing in common with the first repeat of the other.

    >>> count_differences({((2, 2, 2, 1),): 3, ((1, 0, 1, 1),): 1})
    Differences(missions={-1: 3, 2: 1}, scale=2, first=6, second=5)
    """
    repeats = math.lcm(*(number for table in tables for row in table for number in row[::2]))
    scale = repeats * math.lcm(*(len(table) for table in tables))
    missions: dict[int, int] = {}
    first = second = 0
    for table, number in tables.items():
        one = sum(passed * scale // scored for scored, passed, _, _ in table) // len(table)
        other = sum(passed * scale // scored for _, _, scored, passed in table) // len(table)
        missions[other - one] = missions.get(other - one, 0) + number
        first, second = first + one * number, second + other * number
    return Differences(missions=missions, scale=scale, first=first, second=second)
