"""Whether a ledger counts of each attempt what its sealed report comes to: who was asked, and what it cost."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord, AttemptReport
from proctor.evidence.layout import AttemptPaths, CampaignPaths
from proctor.evidence.reader import Problem, read_artifact
from proctor.evidence.tally import tally_of
from proctor.ids import AttemptId
from proctor.plan.recover import Remedy, remedy
from proctor.report.cost import Costs, read_costs
from proctor.report.ledger import LedgerAttempt, read_ledger
from proctor.report.row import AttemptRow

_SOURCE = {
    "sealed": "the sealed attempt says",
    "claimed": "an attempt that has not ended can have",
    "abandoned": "an attempt without a seal can have",
}
_NOT_AGAIN = (Remedy.NONE, Remedy.REDO)


def miscounted(campaign: CampaignPaths, rows: Iterable[AttemptRow]) -> Iterator[tuple[AttemptId, Problem]]:
    """The attempts among `rows` that the ledger tells otherwise than their folders. Never raises.

    What they cost is held against the frozen prices; when they are due again, only against what bounds it.
    """
    with suppress(EvidenceError):  # whoever reads the rows from it has said so
        attempts = {f"{each.run}/{each.id}": each for each in read_ledger(campaign).attempts}
        costs = read_costs(campaign)
        for row in rows:
            if row.ref in attempts and (wrong := _wrong(attempts[row.ref], AttemptPaths(Path(row.dir)), costs)):
                detail = f"not what {_SOURCE[attempts[row.ref].state]}: {', '.join(wrong)}"
                yield row.attempt_id, Problem(code="evidence.ledger", file=campaign.ledger.name, detail=detail)


def _wrong(attempt: LedgerAttempt, paths: AttemptPaths, costs: Costs | None) -> list[str]:
    if attempt.state != "sealed":
        # Whoever has no seal is tried again at once, or with the next run.
        return [] if attempt.retry_at_ms is None else ["retry_at_ms"]
    try:
        record, report = read_artifact(paths.attempt, AttemptRecord), read_artifact(paths.report, AttemptReport)
    except EvidenceError:
        return []  # its own examination tells
    usage = report.metrics.usage
    tokens = None if usage is None else usage.tokens
    is_right = {
        "strategy": attempt.strategy in (None, record.strategy),
        "tally": attempt.tally is None or _is_of(attempt.tally, report),
        # Without a tally it is as a Proctor wrote it that had no prices.
        "usd": (attempt.tally is None and attempt.usd is None)
        or costs is None
        or costs.agree(attempt.usd, flow=record.flow_id, tokens=tokens),
        "retry_at_ms": can_be_due(attempt, report),
    }
    return [name for name, holds in is_right.items() if not holds]


def can_be_due(attempt: LedgerAttempt, report: AttemptReport) -> bool:
    """How long a pause is depends on chance and on others, but nobody comes back before they were told to."""
    if attempt.retry_at_ms is None:
        return True
    if attempt.ended_at_ms is None or remedy(report.outcome, report.code) in _NOT_AGAIN:
        return False
    return attempt.retry_at_ms >= attempt.ended_at_ms + (report.retry_after_ms or 0)


def _is_of(tally: str, report: AttemptReport) -> bool:
    """What an older Proctor did not yet count is missing at the end, and unknown to every gate."""
    try:
        told = msgspec.json.decode(tally, type=list)
    except msgspec.DecodeError:
        return False
    return bool(told == msgspec.json.decode(msgspec.json.encode(tally_of(report)), type=list)[: len(told)])
