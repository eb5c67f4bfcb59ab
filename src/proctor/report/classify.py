"""What the result of a trial is. Lists need this without the scores that reports make of results."""

from typing import Final

from proctor.event.outcome import Outcome
from proctor.evidence.summary import FAILED, PASSED, UNKNOWN, classify_result
from proctor.report.row import AttemptRow

INVALID: Final = "evidence"
"""Its evidence is invalid. All other results are named by the bucket of a failure that is not the agent's."""

OF_THE_AGENT: Final = frozenset({PASSED, FAILED, UNKNOWN})


def classify(row: AttemptRow) -> str:
    """Return what the result of a trial is: PASSED, FAILED, UNKNOWN, INVALID, or the bucket of another failure."""
    if row.is_invalid:
        return INVALID
    if row.summary is None:
        return classify_result(Outcome.UNKNOWN, row.code, is_right=None, met=None)
    return row.summary.result


def is_infra(result: str) -> bool:
    """Whether `retry --only infra` includes the result: it is about the machine, the provider or the run.

    Scored results are never retried by kind, because that would bias the rates.
    """
    return result not in OF_THE_AGENT
