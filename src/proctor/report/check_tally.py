"""Whether a ledger counts of each attempt what its sealed report comes to, for the one who was asked."""

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
from proctor.report.ledger import LedgerAttempt, read_ledger
from proctor.report.row import AttemptRow


def miscounted(campaign: CampaignPaths, rows: Iterable[AttemptRow]) -> Iterator[tuple[AttemptId, Problem]]:
    """The attempts among `rows` that the ledger tells otherwise than their folders. Never raises.

    What they cost and when they were due again stands in no folder, and is the ledger's word alone.
    """
    with suppress(EvidenceError):  # whoever reads the rows from it has said so
        attempts = {f"{each.run}/{each.id}": each for each in read_ledger(campaign).attempts if each.state == "sealed"}
        for row in rows:
            if row.ref in attempts and (wrong := _wrong(attempts[row.ref], AttemptPaths(Path(row.dir)))):
                detail = f"not what the sealed attempt says: {', '.join(wrong)}"
                yield row.attempt_id, Problem(code="evidence.ledger", file=campaign.ledger.name, detail=detail)


def _wrong(attempt: LedgerAttempt, paths: AttemptPaths) -> list[str]:
    try:
        record, report = read_artifact(paths.attempt, AttemptRecord), read_artifact(paths.report, AttemptReport)
    except EvidenceError:
        return []  # its own examination tells
    wrong = [] if attempt.strategy in (None, record.strategy) else ["strategy"]
    return wrong if attempt.tally is None or _is_of(attempt.tally, report) else [*wrong, "tally"]


def _is_of(tally: str, report: AttemptReport) -> bool:
    """What an older Proctor did not yet count is missing at the end, and unknown to every gate."""
    try:
        told = msgspec.json.decode(tally, type=list)
    except msgspec.DecodeError:
        return False
    return bool(told == msgspec.json.decode(msgspec.json.encode(tally_of(report)), type=list)[: len(told)])
