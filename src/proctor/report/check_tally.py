"""Whether a ledger counts of each attempt what its sealed report comes to: who was asked, and what it cost."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord, AttemptReport
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import AttemptPaths, CampaignPaths
from proctor.evidence.reader import Finding, read_artifact
from proctor.evidence.seal import check_seal
from proctor.evidence.summary import summarize
from proctor.ids import AttemptId
from proctor.ledger.reader import read_ledger
from proctor.ledger.schema import LedgerAttempt
from proctor.plan.progress import remedy_for
from proctor.plan.recover import LATER, Remedy, remedy
from proctor.report.cost import Costs, read_costs
from proctor.report.planned import read_plan
from proctor.report.row import AttemptRow


def miscounted(campaign: CampaignPaths, rows: Iterable[AttemptRow]) -> Iterator[tuple[AttemptId, Finding]]:
    """The attempts among `rows` that the ledger tells otherwise than their folders. Never raises.

    What they cost is held against the frozen prices; when they are due again, only against what bounds it.
    """
    with suppress(EvidenceError):  # whoever reads the rows from it has said so
        attempts = {f"{each.run}/{each.id}": each for each in read_ledger(campaign).attempts}
        costs, longest_wait_ms = read_costs(campaign), _longest_wait_ms(campaign)
        for row in rows:
            if row.ref not in attempts:
                continue
            paths = AttemptPaths(Path(row.dir))
            if detail := _told(attempts[row.ref], paths, costs, longest_wait_ms=longest_wait_ms):
                yield row.attempt_id, Finding(code="evidence.ledger", file=campaign.ledger.name, detail=detail)


def _longest_wait_ms(campaign: CampaignPaths) -> int | None:
    with suppress(EvidenceError):  # whoever checks the plan has said so
        return read_plan(campaign).schedule.longest_wait_ms
    return None


def _told(
    attempt: LedgerAttempt, paths: AttemptPaths, costs: Costs | None, *, longest_wait_ms: int | None
) -> str | None:
    if _is_denied(attempt, paths):
        return "it has no seal there, but it was sealed"
    if attempt.state != "sealed":
        # Such a trial is tried again at once, or with the next run.
        return None if attempt.retry_at_ms is None else "without a seal nothing can be due: retry_at_ms"
    wrong = _wrong(attempt, paths, costs, longest_wait_ms=longest_wait_ms)
    return f"not what the sealed attempt says: {', '.join(wrong)}" if wrong else None


def _wrong(
    attempt: LedgerAttempt, paths: AttemptPaths, costs: Costs | None, *, longest_wait_ms: int | None
) -> list[str]:
    try:
        record, report = read_artifact(paths.attempt, AttemptRecord), read_artifact(paths.report, AttemptReport)
    except EvidenceError:
        return []  # its own examination tells
    summary = summarize(record, report)
    is_right = {
        "outcome": attempt.outcome == summary.outcome,
        "code": attempt.code == summary.code,
        "runtime": attempt.runtime_id == summary.runtime_id,
        "tokens": attempt.tokens == (None if summary.tokens is None else summary.tokens.total),
        "summary": attempt.summary == summary,
        "usd": costs is None or costs.agree(attempt.usd, flow=record.flow_id, tokens=summary.tokens),
        "retry_at_ms": can_be_due(attempt, report, longest_wait_ms=longest_wait_ms),
    }
    return [name for name, holds in is_right.items() if not holds]


def _is_denied(attempt: LedgerAttempt, paths: AttemptPaths) -> bool:
    """Whether it counts as if it had not been, though it was sealed. A disk that fails at the seal has another code."""
    if attempt.state != "abandoned" or not os.path.lexists(paths.seal):
        return False
    with AttemptFiles(paths) as files:
        return remedy_for(attempt) is Remedy.REDO and not check_seal(files)


def can_be_due(attempt: LedgerAttempt, report: AttemptReport, *, longest_wait_ms: int | None) -> bool:
    """How long a pause is depends on chance and on others, but nobody comes back before they were told to, unless that
    is later than any run waits.
    """
    if attempt.retry_at_ms is None:
        return True
    if attempt.ended_at_ms is None or remedy(report.outcome, report.code) not in LATER:
        return False
    told_ms = report.retry_after_ms or 0
    least_ms = told_ms if longest_wait_ms is None else min(told_ms, longest_wait_ms)
    return attempt.retry_at_ms >= attempt.ended_at_ms + least_ms
