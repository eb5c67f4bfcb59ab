"""Which attempt of a cell speaks for it. Pure."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from proctor.event.outcome import Outcome
from proctor.ids import CellId


class Tried(Protocol):
    """An attempt, as a ledger or a folder tells of it."""

    @property
    def cell(self) -> CellId | None: ...
    @property
    def state(self) -> str: ...
    @property
    def outcome(self) -> Outcome | None: ...


T = TypeVar("T", bound=Tried)


def has_result(attempt: Tried) -> bool:
    """Whether it was sealed and not cancelled. What was sealed and can no longer be read was a result too."""
    return attempt.state in ("sealed", "unreadable") and attempt.outcome is not Outcome.CANCELLED


def speaker(attempts: Sequence[Tried]) -> int:
    """Where the one that counts stands among a cell's attempts, in order: the last with a result, else the last."""
    last = len(attempts) - 1
    return next((at for at in range(last, -1, -1) if has_result(attempts[at])), last)


def by_cell(attempts: Iterable[T]) -> list[list[T]]:
    """The attempts of each cell, in the order in which they come. One that does not say its cell is by itself."""
    cells: dict[object, list[T]] = {}
    for attempt in attempts:
        # An object of its own is equal to nothing else.
        cells.setdefault(object() if attempt.cell is None else attempt.cell, []).append(attempt)
    return list(cells.values())


def speakers(attempts: Iterable[T]) -> list[T]:
    """One attempt a cell: what a verdict and a score are about."""
    return [tries[speaker(tries)] for tries in by_cell(attempts)]
