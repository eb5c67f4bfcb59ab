"""Intervals contain the true value as often as they promise, and tests find a difference by chance as seldom."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import numpy as np
import pytest
from numpy.typing import NDArray

from proctor.report.stats import (
    SIGNIFICANT,
    Differences,
    MissionTable,
    clustered_interval,
    count_differences,
)

Rates = NDArray[np.float64]
Counts = NDArray[np.int64]

SIMULATIONS = 2000
MISSIONS = (20, 50, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Missions that a campaign could have. `draw` returns the pass rates of A and of B from uniform random numbers."""

    name: str
    difference: float
    discordant: float
    """The share of pairs of a result of A and one of B in which only one passes."""
    draw: Callable[[NDArray[np.float64]], tuple[Rates, Rates]]


def decided(share: float, difference: float) -> Population:
    """Each flow always passes a mission, or never."""
    only_b, only_a = (share + difference) / 2, (share - difference) / 2

    def draw(uniform: NDArray[np.float64]) -> tuple[Rates, Rates]:
        a = (uniform >= only_b) & (uniform < (1 + share) / 2)
        b = (uniform < only_b) | ((uniform >= share) & (uniform < (1 + share) / 2))
        return a.astype(float), b.astype(float)

    assert only_a >= 0
    return Population(name=f"decided {share}", difference=difference, discordant=share, draw=draw)


def noisy(difference: float) -> Population:
    """Pass rates of A are spread over 0 to 1 - difference; those of B are higher by the difference."""

    def draw(uniform: NDArray[np.float64]) -> tuple[Rates, Rates]:
        a = uniform * (1 - difference)
        return a, a + difference

    mean, square = (1 - difference) / 2, (1 - difference) ** 2 / 3
    discordant = 2 * mean + difference - 2 * (square + difference * mean)
    return Population(name="noisy", difference=difference, discordant=discordant, draw=draw)


def broken(share: float, difference: float) -> Population:
    """B always fails a share of the missions that A mostly passes, and is slightly better at all others."""
    gain = (difference + 0.9 * share) / (1 - share)

    def draw(uniform: NDArray[np.float64]) -> tuple[Rates, Rates]:
        is_broken = uniform < share
        return np.where(is_broken, 0.9, 0.4), np.where(is_broken, 0.0, 0.4 + gain)

    discordant = share * 0.9 + (1 - share) * (0.4 * (0.6 - gain) + (0.4 + gain) * 0.6)
    return Population(name=f"broken {share}", difference=difference, discordant=discordant, draw=draw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of the grid: how many missions of which population, each with 1 to `repeats` results on each side."""

    missions: int
    repeats: int
    is_even: bool = True
    population: Population

    def __str__(self) -> str:
        repeats = f"{self.repeats}" if self.is_even else f"1-{self.repeats}"
        population = self.population
        return (
            f"{self.missions:>3} missions × {repeats:<3} {population.name:<13} difference {population.difference:.2f}"
        )

    def campaigns(self) -> Iterator[Differences]:
        """Yield the differences that simulated campaigns find."""
        random = np.random.default_rng([self.missions, self.repeats, round(1000 * self.population.difference)])
        shape = (SIMULATIONS, self.missions)
        columns: list[Counts] = []
        for rate in self.population.draw(random.random(shape)):
            fewest = self.repeats if self.is_even else 1
            scored = random.integers(fewest, self.repeats, size=shape, endpoint=True)
            columns += [scored, random.binomial(scored, rate)]
        base = self.repeats + 1
        codes = np.ravel_multi_index(tuple(columns), (base,) * 4)
        for campaign in codes.tolist():
            yield count_differences({_table(code, base): number for code, number in Counter(campaign).items()})


@cache
def _table(code: int, base: int) -> MissionTable:
    a, passed_a, b, passed_b = (int(number) for number in np.unravel_index(code, (base,) * 4))
    return ((a, passed_a, b, passed_b),)


@cache
def estimate(missions: tuple[tuple[int, int], ...], scale: int, total: int) -> tuple[float, float, float]:
    """Return p and the ends of the interval. Campaigns with the same differences have the same."""
    found = Differences(missions=dict(missions), scale=scale, first=0, second=total)
    p = found.p()
    interval = found.interval(p=p)
    assert interval is not None
    return p, *interval


@cache
def estimates(point: Point) -> list[tuple[float, float, float]]:
    return [
        estimate(tuple(sorted(each.missions.items())), each.scale, each.second - each.first)
        for each in point.campaigns()
    ]


ONE_REPEAT = [
    decided(0.1, 0),
    decided(0.1, 0.05),
    decided(0.25, 0),
    decided(0.25, 0.1),
    decided(0.25, 0.2),
    decided(0.5, 0),
    decided(0.5, 0.1),
    decided(0.5, 0.3),
]
MANY_REPEATS = [noisy(0), noisy(0.1), noisy(0.3), decided(0.1, 0), decided(0.25, 0.1), broken(0.2, 0), broken(0.2, 0.1)]
GRID = [
    *(Point(missions=missions, repeats=1, population=each) for missions in MISSIONS for each in ONE_REPEAT),
    *(Point(missions=missions, repeats=3, population=each) for missions in MISSIONS for each in MANY_REPEATS),
    *(Point(missions=missions, repeats=8, population=each) for missions in MISSIONS for each in (noisy(0), noisy(0.2))),
    *(
        Point(missions=missions, repeats=4, is_even=False, population=each)
        for missions in MISSIONS
        for each in (noisy(0), noisy(0.2))
    ),
]


def show(capsys: pytest.CaptureFixture[str], lines: Sequence[str]) -> None:
    with capsys.disabled():
        sys.stdout.write("\n".join(("", *lines, "")))


@pytest.mark.trust
@pytest.mark.long
@pytest.mark.requirement("surface.stats")
def test_interval_of_a_difference_covers_it_as_often_as_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    covered: dict[Point, float] = {}
    for point in GRID:
        true = point.population.difference
        # An interval that ends at 0 does not contain 0 if the difference is significant.
        covered[point] = fmean(
            low - 1e-9 <= true <= high + 1e-9 and (true != 0 or p >= SIGNIFICANT) for p, low, high in estimates(point)
        )
    average = fmean(share for point, share in covered.items() if point.population.discordant >= 0.25)
    show(capsys, [*(f"{point}: {share:.4f}" for point, share in covered.items()), f"average: {average:.4f}"])
    assert min(covered.values()) >= 0.93
    assert 0.94 <= average <= 0.98


@pytest.mark.trust
@pytest.mark.long
@pytest.mark.requirement("surface.stats")
def test_comparison_of_equally_good_sides_is_seldom_significant(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {
        point: fmean(p < SIGNIFICANT for p, _, _ in estimates(point))
        for point in GRID
        if point.population.difference == 0
    }
    show(capsys, [f"{point}: {share:.4f} significant" for point, share in sizes.items()])
    assert max(sizes.values()) <= 0.06


@pytest.mark.long
@pytest.mark.trust
@pytest.mark.requirement("surface.stats")
def test_interval_of_a_rate_over_repeats_covers_it_as_often_as_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    """The missions of an agent differ: it passes most of them nearly always or nearly never."""
    covered = {}
    for missions in (10, *MISSIONS):
        for repeats in (3, 10):
            for rate in (0.5, 0.8):
                random = np.random.default_rng([missions, repeats, round(100 * rate)])
                rates = random.beta(0.5 * rate, 0.5 * (1 - rate), size=(SIMULATIONS, missions))
                passed = random.binomial(repeats, rates)
                ends = [clustered_interval([(repeats, each) for each in campaign]) for campaign in passed.tolist()]
                covered[missions, repeats, rate] = fmean(end is not None and end[0] <= rate <= end[1] for end in ends)
    show(
        capsys,
        [f"{missions:>3} missions × {n}, rate {of}: {share:.4f}" for (missions, n, of), share in covered.items()],
    )
    assert min(covered.values()) >= 0.93
    assert 0.94 <= fmean(covered.values()) <= 0.98
