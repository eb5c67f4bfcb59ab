"""Fold the attempts of each trial into the trial's progress. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import msgspec

from proctor.event.outcome import Outcome
from proctor.ids import RunId, TrialId
from proctor.plan.recover import Remedy, remedy
from proctor.plan.wait import Wait


class AttemptEnding(Protocol):
    """The properties of an attempt that decide whether its trial is tried again."""

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
    @property
    def is_scored(self) -> bool: ...
    @property
    def has_begun(self) -> bool: ...


class TrialAttemptEnding(AttemptEnding, Protocol):
    """The same, with the id of the trial."""

    @property
    def trial(self) -> TrialId: ...


def remedy_for(attempt: AttemptEnding) -> Remedy:
    """Return what the campaign does after an attempt. An attempt without an outcome was cut off."""
    if attempt.outcome is None:
        return Remedy.REDO
    return remedy(attempt.outcome, attempt.code, has_begun=attempt.has_begun)


def retry_wait(attempt: AttemptEnding) -> Wait | None:
    """Return the wait before the next attempt of the trial, if one was recorded."""
    if attempt.ended_at_ms is None or attempt.retry_at_ms is None:
        return None
    return Wait(since_ms=attempt.ended_at_ms, until_ms=attempt.retry_at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudget:
    """The retries and the time that a trial may use. When it is used up, the last failure is the result."""

    retries: int
    mission_ms: int | None = None

    def is_over(self, failures: int, *, took_ms: int) -> bool:
        """Return whether the budget is used up after these failures and this time."""
        return failures > self.retries or self.left_ms(took_ms) == 0

    def left_ms(self, took_ms: int) -> int | None:
        """Return the remaining time in milliseconds; None for no limit."""
        return None if self.mission_ms is None else max(0, self.mission_ms - took_ms)


class TrialProgress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The progress of a trial after its attempts so far."""

    attempts_made: int = 0
    """Number of the last attempt."""

    failures: int = 0
    """Number of attempts that count against the retries."""

    took_ms: int = 0
    """Total duration of the attempts, in milliseconds."""

    result: int | None = None
    """Number of the attempt that is the trial's result; None without one.

    It is the first scored one, so that which attempt counts does not depend on how it ended. Without
    one, it is the last sealed one that needs no retry.
    """

    is_scored: bool = False
    """Whether the result is scored. Then no later attempt takes its place, unless the user asked to replace it."""

    is_replaceable: bool = False
    """Whether the next scored attempt takes the place of a scored result."""

    is_settled: bool = False
    """Whether the result is final. False while the trial must be tried, for the first time or again."""

    run: RunId | None = None
    """Id of the run of the last attempt."""

    wait: Wait | None = None
    """How long to wait before the next attempt; None without a wait."""

    def after(self, attempt: AttemptEnding, *, retry_budget: RetryBudget) -> "TrialProgress":
        """Return the progress after one more attempt.

        A scored result stays; any other stays until there is another one. An attempt that was cut off does not count as
        a failure.
        """
        before = self if self.run is None or self.run == attempt.run else self.for_new_run(retry_budget=retry_budget)
        next_step = remedy_for(attempt)
        failures = before.failures + (next_step is Remedy.AGAIN)
        took_ms = before.took_ms + attempt.took_ms
        is_final = next_step is Remedy.NONE or (
            next_step is Remedy.AGAIN and retry_budget.is_over(failures, took_ms=took_ms)
        )
        is_result = is_final and attempt.state == "sealed"
        is_kept = before.is_scored and not before.is_replaceable
        takes_place = is_result and not is_kept and (attempt.is_scored or not before.is_scored)
        return TrialProgress(
            attempts_made=max(before.attempts_made, attempt.n),
            failures=failures,
            took_ms=took_ms,
            result=attempt.n if takes_place else before.result,
            is_scored=attempt.is_scored if takes_place else before.is_scored,
            is_replaceable=before.is_replaceable and not takes_place,
            is_settled=is_result or is_kept or (before.is_settled and next_step is Remedy.REDO),
            run=attempt.run,
            wait=None if is_result else retry_wait(attempt),
        )

    def for_new_run(self, *, retry_budget: RetryBudget) -> "TrialProgress":
        """Return the progress with which another run begins.

        A settled trial is tried again only on request, with a new budget. A trial that used up its budget without a
        sealed attempt gets a new budget too. The numbering of attempts continues.
        """
        if self.is_settled or retry_budget.is_over(self.failures, took_ms=self.took_ms):
            return TrialProgress(
                attempts_made=self.attempts_made,
                result=self.result,
                is_scored=self.is_scored,
                is_replaceable=self.is_replaceable,
                run=self.run,
                wait=self.wait,
            )
        return self

    def for_replacement(self) -> "TrialProgress":
        """Return the progress with which the result is replaced: the next scored attempt takes its place."""
        return msgspec.structs.replace(self, is_replaceable=self.is_scored)

    def without_wait(self) -> "TrialProgress":
        """Return the progress without its wait."""
        return msgspec.structs.replace(self, wait=None)


UNTRIED = TrialProgress()
"""The progress of a trial without attempts."""


def fold_attempts(
    attempts: Iterable[AttemptEnding], *, retry_budget: RetryBudget, replaced_from: Collection[int] = ()
) -> TrialProgress:
    """Fold a trial's attempts, oldest first, into its progress.

    `replaced_from` are the numbers of the first attempts that were made to replace a scored result.
    """
    progress = UNTRIED
    for attempt in attempts:
        if attempt.n in replaced_from:
            progress = progress.for_replacement()
        progress = progress.after(attempt, retry_budget=retry_budget)
    return progress


def fold_trials(
    attempts: Iterable[TrialAttemptEnding],
    *,
    retry_budget: RetryBudget,
    replaced_from: Mapping[TrialId, Collection[int]] = MappingProxyType({}),
) -> Mapping[TrialId, TrialProgress]:
    """Fold attempts into the progress of every trial that has any. The attempts of a trial are oldest first."""
    trials: dict[TrialId, list[TrialAttemptEnding]] = {}
    for attempt in attempts:
        trials.setdefault(attempt.trial, []).append(attempt)
    return {
        trial: fold_attempts(each, retry_budget=retry_budget, replaced_from=replaced_from.get(trial, ()))
        for trial, each in trials.items()
    }
