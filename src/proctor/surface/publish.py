"""The strict examination of a campaign before its results are published."""

from proctor.errors import EvidenceError
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.reader import Finding
from proctor.evidence.validate import Status
from proctor.ids import AttemptId
from proctor.report.campaign import build_report
from proctor.report.publish import Publication, judge_publication
from proctor.surface.examine import ExaminedItem, examine_campaign


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
    is_counted = each.kind == "campaign" or (each.kind == "attempt" and each.name in results)
    if each.status is Status.VALID or (each.status is Status.PARTIAL and not is_counted):
        return ()
    return each.findings
