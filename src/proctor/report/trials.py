"""Which attempt of a trial speaks for it. Pure; what decides is the fold that resume goes by."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from proctor.ids import TrialId
from proctor.plan.progress import AttemptEnding, RetryBudget, fold_attempts


class HasTrial(Protocol):
    """An attempt, as a ledger or a folder tells of it."""

    @property
    def trial(self) -> TrialId | None: ...


class HasSuperseded(HasTrial, Protocol):
    """An attempt of which it is told whether a later one of its trial counts instead of it."""

    @property
    def is_superseded(self) -> bool: ...


T = TypeVar("T", bound=HasTrial)
S = TypeVar("S", bound=HasSuperseded)


def by_trial(attempts: Iterable[T]) -> list[list[T]]:
    """The attempts of each trial, in the order in which they come. One that does not say its trial is by itself."""
    trials: dict[object, list[T]] = {}
    for attempt in attempts:
        # An object of its own is equal to nothing else.
        trials.setdefault(object() if attempt.trial is None else attempt.trial, []).append(attempt)
    return list(trials.values())


def speaker(tries: Sequence[AttemptEnding], *, retry_budget: RetryBudget) -> int:
    """Where the one that counts stands among a trial's attempts, in order: its result, else the last."""
    result = fold_attempts(tries, retry_budget=retry_budget).result if len(tries) > 1 else None
    return next((at for at, each in enumerate(tries) if each.n == result), len(tries) - 1)


def speakers(attempts: Iterable[S]) -> list[S]:
    """One attempt a trial, the first that none supersedes: what a verdict is about."""
    return [next((each for each in tries if not each.is_superseded), tries[-1]) for tries in by_trial(attempts)]
