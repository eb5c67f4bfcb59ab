"""The conformance suite for runtimes, both those in this package and plugins."""

from proctor.testing.conformance.case import Case, CaseVerdict, NotApplicableError, Result, UnprovenError
from proctor.testing.conformance.subject import Subject, open_subject
from proctor.testing.conformance.suite import case_by_id, cases, run_case, run_suite

__all__ = [
    "Case",
    "CaseVerdict",
    "NotApplicableError",
    "Result",
    "Subject",
    "UnprovenError",
    "case_by_id",
    "cases",
    "open_subject",
    "run_case",
    "run_suite",
]
