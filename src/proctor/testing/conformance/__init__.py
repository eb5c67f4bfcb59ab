"""The conformance suite: what every runtime has to show, for ours and for other people's."""

from proctor.testing.conformance.case import Case, NotApplicableError, Result, UnprovenError, Verdict
from proctor.testing.conformance.subject import Subject, open_subject
from proctor.testing.conformance.suite import case_by_id, cases, run_case, run_suite

__all__ = [
    "Case",
    "NotApplicableError",
    "Result",
    "Subject",
    "UnprovenError",
    "Verdict",
    "case_by_id",
    "cases",
    "open_subject",
    "run_case",
    "run_suite",
]
