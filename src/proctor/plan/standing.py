"""How far each cell of a campaign has come, as a fold of its attempts. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from proctor.event.outcome import Outcome
from proctor.ids import AttemptId, CellId, RunId, StrategyId
from proctor.plan.recover import Remedy, remedy
from proctor.plan.wait import Wait


class Attempted(Protocol):
    """An attempt, as far as it says what is left to do of its cell."""

    @property
    def n(self) -> int: ...
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
    usd: float | None = None
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


class Standing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """After the attempts made of a cell so far. `failures` are those that count against its retries; `result` is the
    number of the attempt that settled it, if one did.
    """

    made: int = 0
    failures: int = 0
    took_ms: int = 0
    result: int | None = None
    wait: Wait | None = None

    @property
    def is_settled(self) -> bool:
        return self.result is not None

    def then(self, tried: Attempted, *, patience: Patience) -> "Standing":
        """After one more. What was cut off from outside is as if it had not been: an earlier result stands."""
        after = follows(tried)
        failures = self.failures + (after is Remedy.AGAIN)
        took_ms = self.took_ms + tried.took_ms
        is_final = after is Remedy.NONE or (after is Remedy.AGAIN and patience.is_over(failures, took_ms=took_ms))
        if is_final and tried.state == "sealed":
            return Standing(made=max(self.made, tried.n), failures=failures, took_ms=took_ms, result=tried.n)
        return Standing(
            made=max(self.made, tried.n),
            failures=failures,
            took_ms=took_ms,
            result=self.result if after is Remedy.REDO else None,
            wait=waits(tried),
        )

    def anew(self) -> "Standing":
        """As if nothing counted yet: somebody wants it tried again. Numbers of attempts go on."""
        return Standing(made=self.made)


UNTRIED = Standing()


def standings(tried: Iterable[Tried], *, patience: Patience) -> Mapping[CellId, Standing]:
    """Of every cell that was ever tried; a cell's attempts come in order."""
    known: dict[CellId, Standing] = {}
    for each in tried:
        known[each.cell] = known.get(each.cell, UNTRIED).then(each, patience=patience)
    return known
