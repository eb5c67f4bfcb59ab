"""Find the trials that a resumed campaign must run."""

from collections.abc import Set as AbstractSet

from proctor.ids import TrialId
from proctor.plan.model import Plan, Trial


def remaining(plan: Plan, settled: AbstractSet[TrialId]) -> tuple[Trial, ...]:
    """Return the trials that are not settled, in the order of the plan."""
    return tuple(trial for trial in plan.trials if trial.id not in settled)
