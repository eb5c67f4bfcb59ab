"""The strict look at a campaign before its results are shown to others."""

from contextlib import suppress

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.reader import Finding, read_artifact
from proctor.evidence.validate import Status
from proctor.report.campaign import report_campaign
from proctor.report.campaign_state import CampaignState, read_trials
from proctor.report.find import root_of
from proctor.report.publish import Publication, judge_publication
from proctor.surface.examine import ExaminedItem, examine_place


def check_publication(campaign: CampaignPaths) -> Publication:
    """Everything is derived again. EvidenceError where not even ledger or plan can be read."""
    found = read_trials(campaign, root=root_of(campaign))
    results: set[str] = {each.spoken.id for each in found.trials if each.spoken is not None and each.stands is not None}
    examined = examine_place(campaign, is_strict=True).examined
    return judge_publication(
        report_campaign(found),
        probes=_probes(found, campaign),
        findings=tuple(
            (each.name, finding) for each in examined for finding in _standing_in_the_way(each, results=results)
        ),
    )


def _standing_in_the_way(each: ExaminedItem, *, results: set[str]) -> tuple[Finding, ...]:
    """What was cut off beside the results is told by the report; only what is damaged taints them."""
    is_counted = each.kind == "campaign" or (each.kind == "attempt" and each.name in results)
    if each.status is Status.VALID or (each.status is Status.PARTIAL and not is_counted):
        return ()
    return each.findings


def _probes(found: CampaignState, campaign: CampaignPaths) -> int:
    """How many probes were required of the results, by their own sealed word."""
    required = 0
    for each in found.trials:
        if each.spoken is not None and each.stands is not None:
            paths = root_of(campaign).run(each.spoken.run).attempt(each.trial.id, n=each.spoken.n)
            with suppress(EvidenceError):  # the examination tells
                required += len(read_artifact(paths.attempt, AttemptRecord).required_probes)
    return required
