"""How far each cell of a campaign has come, as a fold of its attempts. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

import msgspec

from proctor.event.outcome import Outcome
from proctor.ids import AttemptId, CellId, RunId, StrategyId
from proctor.plan.recover import Remedy, remedy
from proctor.plan.wait import Wait

Usd = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
"""What an attempt cost: not less than nothing, nor more than the most tokens that are believed cost at any price."""


class Attempted(Protocol):
    """An attempt, as far as it says what is left to do of its cell."""

    @property
    def n(self) -> int: ...
    @property
    def run(self) -> RunId: ...
    @property
    def state(self) -> str: ...
    @property
    def outcome(self) -> Outcome | None: ...
    @property
    def code(self) -> str | None: ...
    @property
    def ended_at_ms(self) -> int | None: ...
    @property
    def retry_at_ms(self) -> int | None: ...
    @property
    def took_ms(self) -> int: ...


class AttemptedCell(Attempted, Protocol):
    """One that says whose it is."""

    @property
    def cell(self) -> CellId: ...


def follows(tried: Attempted) -> Remedy:
    """What follows it. One that nobody saw the end of was cut off."""
    return Remedy.REDO if tried.outcome is None else remedy(tried.outcome, tried.code)


def waits(tried: Attempted) -> Wait | None:
    """What its cell waits for before another try, where that was told."""
    if tried.ended_at_ms is None or tried.retry_at_ms is None:
        return None
    return Wait(since_ms=tried.ended_at_ms, until_ms=tried.retry_at_ms)


class Tried(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of the ledger, as whoever runs the campaign reads it."""

    id: AttemptId
    cell: CellId
    n: int
    run: RunId
    state: Literal["claimed", "sealed", "abandoned"]
    claimed_at_ms: int
    ended_at_ms: int | None = None
    outcome: Outcome | None = None
    code: str | None = None
    retry_at_ms: int | None = None
    usd: Usd | None = None
    strategy: StrategyId | None = None

    @property
    def took_ms(self) -> int:
        return 0 if self.ended_at_ms is None else max(0, self.ended_at_ms - self.claimed_at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """What a cell may use up before its last failure stands: retries, and time over all its attempts."""

    retries: int
    mission_ms: int | None = None

    def is_over(self, failures: int, *, took_ms: int) -> bool:
        return failures > self.retries or self.left_ms(took_ms) == 0

    def left_ms(self, took_ms: int) -> int | None:
        return None if self.mission_ms is None else max(0, self.mission_ms - took_ms)


class CellProgress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """After the attempts made of a cell so far. `failures` are those that count against its retries.

    `result` is the number of the attempt that speaks for it: the last that was sealed and that nothing had to follow.
    It is not settled while it is to be tried, be it for the first time or anew. `run` is that of its last attempt.
    """

    made: int = 0
    failures: int = 0
    took_ms: int = 0
    result: int | None = None
    is_settled: bool = False
    run: RunId | None = None
    wait: Wait | None = None

    def then(self, tried: Attempted, *, patience: Patience) -> "CellProgress":
        """After one more. A result stands until there is another; what was cut off is as if it had not been."""
        before = self if self.run is None or self.run == tried.run else self.again(patience=patience)
        after = follows(tried)
        failures = before.failures + (after is Remedy.AGAIN)
        took_ms = before.took_ms + tried.took_ms
        is_final = after is Remedy.NONE or (after is Remedy.AGAIN and patience.is_over(failures, took_ms=took_ms))
        is_result = is_final and tried.state == "sealed"
        return CellProgress(
            made=max(before.made, tried.n),
            failures=failures,
            took_ms=took_ms,
            result=tried.n if is_result else before.result,
            is_settled=is_result or (before.is_settled and after is Remedy.REDO),
            run=tried.run,
            wait=None if is_result else waits(tried),
        )

    def again(self, *, patience: Patience) -> "CellProgress":
        """As another run takes it up. None tries what is settled unless somebody wants it so: then nothing counts yet,
        and its result speaks until there is another. So it is with what used up its patience before anything was
        sealed: a try without any time would be no try. Numbers of attempts go on.
        """
        if self.is_settled or patience.is_over(self.failures, took_ms=self.took_ms):
            return CellProgress(made=self.made, result=self.result, run=self.run, wait=self.wait)
        return self

    def now(self) -> "CellProgress":
        """Whatever it waits for."""
        return msgspec.structs.replace(self, wait=None)


UNTRIED = CellProgress()


def fold_tries(tries: Iterable[Attempted], *, patience: Patience) -> CellProgress:
    """Of one cell, from its attempts in order."""
    standing = UNTRIED
    for each in tries:
        standing = standing.then(each, patience=patience)
    return standing


def fold_cells(tried: Iterable[AttemptedCell], *, patience: Patience) -> Mapping[CellId, CellProgress]:
    """Of every cell that was ever tried; a cell's attempts come in order."""
    known: dict[CellId, CellProgress] = {}
    for each in tried:
        known[each.cell] = known.get(each.cell, UNTRIED).then(each, patience=patience)
    return known
