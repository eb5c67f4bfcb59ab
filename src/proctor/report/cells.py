"""Which attempt of a cell speaks for it. Pure; what decides is the fold that resume goes by."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from proctor.ids import CellId
from proctor.plan.standing import Attempted, Patience, fold_tries


class OfCell(Protocol):
    """An attempt, as a ledger or a folder tells of it."""

    @property
    def cell(self) -> CellId | None: ...


class Told(OfCell, Protocol):
    """An attempt of which it is told whether a later one of its cell counts instead of it."""

    @property
    def is_superseded(self) -> bool: ...


T = TypeVar("T", bound=OfCell)
S = TypeVar("S", bound=Told)


def by_cell(attempts: Iterable[T]) -> list[list[T]]:
    """The attempts of each cell, in the order in which they come. One that does not say its cell is by itself."""
    cells: dict[object, list[T]] = {}
    for attempt in attempts:
        # An object of its own is equal to nothing else.
        cells.setdefault(object() if attempt.cell is None else attempt.cell, []).append(attempt)
    return list(cells.values())


def speaker(tries: Sequence[Attempted], *, patience: Patience) -> int:
    """Where the one that counts stands among a cell's attempts, in order: its result, else the last."""
    result = fold_tries(tries, patience=patience).result if len(tries) > 1 else None
    return next((at for at, each in enumerate(tries) if each.n == result), len(tries) - 1)


def speakers(attempts: Iterable[S]) -> list[S]:
    """One attempt a cell, the first that none supersedes: what a verdict is about."""
    return [next((each for each in tries if not each.is_superseded), tries[-1]) for tries in by_cell(attempts)]
