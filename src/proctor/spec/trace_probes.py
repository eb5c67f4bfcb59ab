"""Structs of a spec: probes that judge the trace of a simulation."""

import math
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from proctor.spec.argv import argv_of
from proctor.spec.pointer import is_pointer
from proctor.spec.probe_options import KeyProblem, ProbeOptions
from proctor.spec.struct import Command, Duration, Spec, Text

SEED: Final = "{seed}"
"""In the command of a simulation, the seed of its random numbers."""
TICKS: Final = "{ticks}"
"""In the command of a simulation, the number of ticks."""
MAX_TICKS: Final = 1_000_000

Number: TypeAlias = int | float
_RULES: Final = ("changes", "monotone", "within", "conserved")
_RULE_OF_OPTION: Final = {
    "direction": "monotone",
    "strictly": "monotone",
    "min": "within",
    "max": "within",
    "tolerance": "conserved",
}


class LawDirection(StrEnum):
    """How a number develops from tick to tick."""

    UP = "up"
    """It does not decrease."""

    DOWN = "down"
    """It does not increase."""


class TraceLaw(Spec, frozen=True, kw_only=True):
    """One of `laws`: what holds for the rows of a trace. It has exactly one of the keys `changes`, `monotone`, `within`
    and `conserved`, whose values are JSON pointers into a row."""

    changes: Text | None = None
    """The value at this pointer is not the same in all rows. Default: none."""

    monotone: Text | None = None
    """The number at this pointer never moves against `direction`. Default: none."""

    direction: LawDirection = LawDirection.UP
    """The direction of `monotone`: `up` or `down`. Default `up`."""

    strictly: bool = False
    """Whether the number of `monotone` must move at every tick. Default false."""

    within: Text | None = None
    """The number at this pointer is never below `min` or above `max`. Default: none."""

    min: Number | None = None
    """The smallest number that `within` accepts. Default: no limit."""

    max: Number | None = None
    """The largest number that `within` accepts. Default: no limit."""

    conserved: Annotated[list[Text], Meta(min_length=1)] | None = None
    """The sum of the numbers at these pointers stays as it is in the first row. Default: none."""

    tolerance: Number = 0
    """How far the sum of `conserved` may differ from that of the first row. Default 0."""

    @property
    def pointers(self) -> dict[str, str]:
        """The JSON pointers, by their key in the law."""
        single = {name: getattr(self, name) for name in _RULES[:-1]}
        several = {f"conserved[{at}]": pointer for at, pointer in enumerate(self.conserved or ())}
        return {name: pointer for name, pointer in {**single, **several}.items() if pointer is not None}

    def problems(self, *, ticks: int) -> Iterator[KeyProblem]:
        """Yield what is wrong with the keys. Their names are relative to the law; that of the law itself is empty."""
        rules = [name for name in _RULES if getattr(self, name) is not None]
        if len(rules) != 1:
            what = f"it has {' and '.join(f'`{name}`' for name in rules) or 'no rule'}"
            suggestion = "Give each law exactly one of `changes`, `monotone`, `within` and `conserved`."
            yield KeyProblem("spec.type" if rules else "spec.missing-key", what, key="", suggestion=suggestion)
        defaults = TraceLaw()
        for name, rule in _RULE_OF_OPTION.items():
            if getattr(self, name) != getattr(defaults, name) and rule not in rules:
                what = f"`{name}` has no effect without `{rule}`"
                yield KeyProblem("spec.unsupported", what, key=name, suggestion=f"Remove `{name}`.")
        for name, pointer in self.pointers.items():
            if not is_pointer(pointer):
                what = f"`{pointer}` is not a JSON pointer"
                yield KeyProblem(
                    "spec.type", what, key=name, suggestion="Write `/energy` for the key `energy` of a row."
                )
        if self.changes is not None and ticks == 1:
            yield KeyProblem("spec.type", "nothing changes within 1 tick", key="changes", suggestion="Raise `ticks`.")
        yield from self._number_problems()

    def _number_problems(self) -> Iterator[KeyProblem]:
        numbers = {"min": self.min, "max": self.max, "tolerance": self.tolerance}
        for name, number in numbers.items():
            if number is not None and not _is_finite(number):
                yield KeyProblem("spec.type", f"{number} is not a finite number", key=name)
        if self.within is not None and self.min is None and self.max is None:
            yield KeyProblem("spec.missing-key", "`within` needs the key `min` or `max`", key="within")
        if self.min is not None and self.max is not None and self.min > self.max:
            yield KeyProblem("spec.type", f"{self.min} is greater than `max`, which is {self.max}", key="min")
        if self.tolerance < 0:
            yield KeyProblem("spec.type", f"{self.tolerance} is less than 0", key="tolerance")


class SimTrace(ProbeOptions, tag_field="kind", tag="sim_trace", frozen=True, kw_only=True):
    """A probe that runs a simulation three times and judges the rows that it prints, one JSON object for each tick."""

    command: Command
    """The command: a list is argv, a string is run with `bash -c`. `{seed}` is the seed, and must occur. `{ticks}` is
    the number of ticks."""

    seed: int = 1
    """The seed of the first two runs. Default 1."""

    other_seed: int | None = None
    """The seed of the third run. Default: `seed` + 1."""

    ticks: Annotated[int, Meta(ge=1, le=MAX_TICKS)] = 100
    """How many rows each run prints, 1 to 1,000,000. Default 100."""

    laws: Annotated[list[TraceLaw], Meta(min_length=1)]
    """What holds for the rows of a trace."""

    timeout: Duration = "1m"
    """Longest duration of the three runs together; the probe fails after it. Default 1 minute."""

    @property
    def seeds(self) -> tuple[int, int]:
        """The seed of the first two runs, and that of the third.

        >>> SimTrace(command="sim {seed}", laws=[TraceLaw(changes="/x")]).seeds
        (1, 2)
        """
        return self.seed, self.seed + 1 if self.other_seed is None else self.other_seed

    @property
    def argv(self) -> tuple[str, ...]:
        return argv_of(self.command)

    def argv_with(self, seed: int) -> tuple[str, ...]:
        """
        >>> SimTrace(command=["./sim", "{seed}", "-n{ticks}"], laws=[TraceLaw(changes="/x")]).argv_with(7)
        ('./sim', '7', '-n100')
        """
        return tuple(word.replace(SEED, str(seed)).replace(TICKS, str(self.ticks)) for word in self.argv)

    def problems(self) -> Iterator[KeyProblem]:
        yield from super().problems()
        if not any(SEED in word for word in self.argv):
            what = f"the command does not contain `{SEED}`, so that every run would be the same"
            yield KeyProblem("spec.type", what, key="command", suggestion=f"Add `{SEED}` where it takes its seed.")
        if self.seed == self.seeds[1]:
            yield KeyProblem("spec.type", f"{self.other_seed} is the same as `seed`", key="other_seed")
        for at, law in enumerate(self.laws):
            for problem in law.problems(ticks=self.ticks):
                key = f"laws[{at}].{problem.key}".removesuffix(".")
                yield KeyProblem(problem.code, problem.what, key=key, suggestion=problem.suggestion)


def _is_finite(number: Number) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False
