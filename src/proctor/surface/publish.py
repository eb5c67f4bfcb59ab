"""The strict examination of a campaign before its results are published."""

from proctor.errors import EvidenceError
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.reader import Finding
from proctor.ids import AttemptId
from proctor.report.campaign import build_report
from proctor.report.publish import Publication, judge_publication
from proctor.surface.examine import ExaminedItem, ItemStatus, examine_campaign


def check_publication(campaign: CampaignPaths) -> Publication:
    """Derive everything again and judge. Raises EvidenceError if the ledger or the plan cannot be read."""
    state, examined = examine_campaign(campaign, is_strict=True)
    if state.findings:
        first = state.findings[0]
        raise EvidenceError(first.code, first.detail, file=first.file)
    results = {
        each.counted_attempt.attempt_id
        for each in state.trials
        if each.counted_attempt is not None and each.result is not None
    }
    findings = tuple((each.name, finding) for each in examined for finding in _blocking_findings(each, results))
    return judge_publication(build_report(state), findings=findings)


def _blocking_findings(each: ExaminedItem, results: set[AttemptId]) -> tuple[Finding, ...]:
    """Return the findings that block publication: attempts that were cut off block only if they are results."""
    is_counted = each.kind != "attempt" or each.name in results
    if each.status is ItemStatus.PARTIAL and each.kind in ("process", "run"):
        # A line that is torn where the evidence was cut off is not another reason.
        return tuple(finding for finding in each.findings if finding.code != "evidence.torn")
    is_blocking = each.status is ItemStatus.INVALID or (each.status is ItemStatus.PARTIAL and is_counted)
    return each.findings if is_blocking else ()
