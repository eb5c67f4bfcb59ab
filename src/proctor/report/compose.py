"""A report of attempts: the rows, and what they come to."""

from collections.abc import Callable

from proctor.evidence.reader import Finding
from proctor.report.query import AttemptQuery, report_row
from proctor.report.row import AttemptRow, Evidence, Report
from proctor.report.verdict import WORDS, judge_all

Check = Callable[[AttemptRow], tuple[Evidence, tuple[Finding, ...]]]
"""What an inspection of the attempt's folder finds. Reports start nothing, so whoever asks for one brings it."""


def unchecked(_: AttemptRow) -> tuple[Evidence, tuple[Finding, ...]]:
    return "unchecked", ()


def compose(found: AttemptQuery, *, check: Check = unchecked, is_interrupted: bool = False) -> Report:
    """What was found, each attempt held against its evidence as far as `check` goes."""

    def row_of(row: AttemptRow) -> AttemptRow:
        evidence, findings = check(row)
        return report_row(row, evidence=evidence, findings=findings)

    rows = tuple(map(row_of, found.rows))
    code = judge_all(
        rows,
        missing=len(found.missing_trials),
        gates=found.gates,
        is_interrupted=is_interrupted,
        is_damaged=bool(found.findings),
    )
    return Report(
        campaign_id=found.campaign_id,
        run_ids=found.run_ids,
        exit=code,
        verdict=WORDS[code],
        attempts=rows,
        missing_trials=found.missing_trials,
        gates=found.gates,
        findings=found.findings,
    )
