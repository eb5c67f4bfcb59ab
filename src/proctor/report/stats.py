"""Estimate pass rates with confidence intervals, and compare them. Pure. See docs/explain/statistics.md."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

CONFIDENCE = 0.95
SIGNIFICANT = 1 - CONFIDENCE
_BISECTIONS = 60


def wilson(passed: int, scored: int, *, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Return the Wilson score interval of a pass rate; None if nothing was scored.

    The examples of Newcombe (1998), 81 of 263 and 0 of 20:

    >>> [round(end, 4) for end in wilson(81, 263)], [round(end, 4) for end in wilson(0, 20)]
    ([0.2553, 0.3662], [0.0, 0.1611])
    """
    if not scored:
        return None
    from statistics import NormalDist  # slow to import: as long as all other modules of a short report

    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, share = passed / scored, z * z / scored
    middle = (rate + share / 2) / (1 + share)
    half = z * math.sqrt(rate * (1 - rate) / scored + share / (4 * scored)) / (1 + share)
    # At 0 and 1, rounding errors would exclude the rate itself.
    return (0.0 if passed == 0 else middle - half, 1.0 if passed == scored else middle + half)


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


def at_most(k: int, n: int, chance: float) -> float:
    """Return the chance of at most k successes in n independent tries (the binomial distribution function).

    >>> round(at_most(1, 2, 0.5), 12), round(at_most(3, 10, 0.2), 6)
    (0.75, 0.879126)
    """
    if k < 0:
        return 0.0
    if k >= n or chance <= 0:
        return 1.0
    if chance >= 1:
        return 0.0
    if k > n * chance:
        return 1 - at_most(n - k - 1, n, 1 - chance)
    # Sum from the largest term down, and stop when the terms no longer change the sum.
    term = math.exp(
        math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(chance)
        + (n - k) * math.log1p(-chance)
    )
    total, odds = 0.0, (1 - chance) / chance
    for i in range(k, -1, -1):
        total += term
        if term < total * 1e-17:
            break
        term *= i / (n - i + 1) * odds
    return min(total, 1.0)


def clopper_pearson(passed: int, tries: int, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the Clopper-Pearson (exact) interval of a pass rate.

    >>> [round(end, 4) for end in clopper_pearson(81, 263)], [round(end, 4) for end in clopper_pearson(0, 20)]
    ([0.2527, 0.3676], [0.0, 0.1684])
    """
    tail = (1 - confidence) / 2
    low = 0.0 if passed == 0 else _find_threshold(lambda chance: 1 - at_most(passed - 1, tries, chance) >= tail)
    high = 1.0 if passed == tries else _find_threshold(lambda chance: at_most(passed, tries, chance) < tail)
    return low, high


def _find_threshold(holds: Callable[[float], bool]) -> float:
    """Return the smallest chance from which on the condition holds, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return (low + high) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The results of two flows for the same trials, counted by pair."""

    both: int
    """Pairs in which both passed."""
    only_first: int
    """Pairs in which only the first passed."""
    only_second: int
    """Pairs in which only the second passed."""
    neither: int
    """Pairs in which neither passed."""

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float | None:
        """The pass rate of the second minus that of the first; None without pairs."""
        return (self.only_second - self.only_first) / self.pairs if self.pairs else None

    @property
    def p(self) -> float:
        """The p-value of McNemar's exact test, two-sided."""
        return sign_test(self.only_first, self.only_second)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The confidence interval of the difference; None without pairs. It excludes 0 exactly if `p` is significant.

        It is exact for the pairs that differ. If no pair differs, it is as wide as the upper limit of the share that
        could differ in one direction.

        >>> [round(end, 4) for end in Paired(both=0, only_first=1, only_second=8, neither=11).interval]
        [0.0158, 0.4475]
        """
        differing = self.only_first + self.only_second
        if not self.pairs:
            return None
        if not differing:
            _, limit = clopper_pearson(0, self.pairs)
            return -limit, limit
        low, high = clopper_pearson(self.only_second, differing)
        share = differing / self.pairs
        return (2 * low - 1) * share, (2 * high - 1) * share


def paired(passes: Iterable[tuple[bool, bool]]) -> Paired:
    """Count pairs of results.

    >>> paired([(True, True), (True, False), (False, True), (False, True)])
    Paired(both=1, only_first=1, only_second=2, neither=0)
    """
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    for pair in passes:
        counts[pair] += 1
    both, first, second, neither = counts.values()
    return Paired(both=both, only_first=first, only_second=second, neither=neither)
