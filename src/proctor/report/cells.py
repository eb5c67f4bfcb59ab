"""Which attempt of a cell speaks for it. Pure."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from proctor.event.outcome import Outcome
from proctor.ids import CellId
from proctor.plan.recover import Remedy, remedy

_STANDS = (Remedy.NONE, Remedy.AGAIN)


class Tried(Protocol):
    """An attempt, as a ledger or a folder tells of it."""

    @property
    def cell(self) -> CellId | None: ...
    @property
    def state(self) -> str: ...
    @property
    def outcome(self) -> Outcome | None: ...
    @property
    def code(self) -> str | None: ...


T = TypeVar("T", bound=Tried)


def has_result(attempt: Tried) -> bool:
    """Whether it was sealed and says something of its cell: it was neither cut off from outside nor kept from working
    by a limit or a refused credential. What was sealed and can no longer be read was a result too.
    """
    if attempt.state == "unreadable":
        return True
    return attempt.state == "sealed" and remedy(attempt.outcome or Outcome.UNKNOWN, attempt.code) in _STANDS


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
