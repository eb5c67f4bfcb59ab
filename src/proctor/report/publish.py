"""Whether a campaign's results may be published, with every reason why not. Pure."""

from collections.abc import Iterator

from proctor.errors import CODES, Exit
from proctor.evidence.artifacts import Artifact, Part
from proctor.evidence.reader import Finding
from proctor.ids import CampaignId, FlowId
from proctor.report.campaign import CampaignReport
from proctor.report.classify import INVALID
from proctor.report.format_values import plural
from proctor.report.verdict import exit_of_finding, worst


class Reason(Part, frozen=True, kw_only=True):
    """A reason not to publish a campaign."""

    code: str
    """Error code."""
    what: str
    """What is wrong."""
    todo: str
    """What to do about it."""
    exit: int
    """Exit code that this reason alone would give."""


class Publication(Artifact, frozen=True, kw_only=True):
    """What `campaign publish-check --json` prints."""

    ok: bool
    """Whether the campaign may be published."""
    exit: int
    """The exit code of the command."""
    campaign_id: CampaignId | None
    """The campaign."""
    reasons: tuple[Reason, ...]
    """Every reason why it may not."""
    scripted_flows: tuple[FlowId, ...]
    """The flows whose results are of a script, not of a model."""
    has_models: bool
    """Whether other flows have results of a model."""


def judge_publication(report: CampaignReport, *, findings: tuple[tuple[str, Finding], ...]) -> Publication:
    """Judge a report. `findings` are about the evidence, each with the name of what it is about."""
    reasons = tuple(_reasons(report, findings=findings))
    code = worst({Exit.OK, *(Exit(reason.exit) for reason in reasons)})
    return Publication(
        ok=not reasons,
        exit=code,
        campaign_id=report.campaign_id,
        reasons=reasons,
        scripted_flows=report.scripted_flows,
        has_models=not {each.flow_id for each in report.flows} <= set(report.scripted_flows),
    )


def _reasons(report: CampaignReport, *, findings: tuple[tuple[str, Finding], ...]) -> Iterator[Reason]:
    if report.is_canary:
        yield _reason("publish.canary", f"{report.campaign_id} is a canary")
    if report.failed_in is not None:
        yield _reason("publish.selected", f"{report.campaign_id} has only trials that failed in {report.failed_in}")
    if report.is_running:
        yield _reason("publish.running", f"{report.campaign_id} is running")
    score = report.score
    if not score.trials:
        yield _reason("publish.vacuous", "the plan has no trials")
    elif score.results and not _has_probes(report):
        yield _reason("publish.vacuous", "no mission has a probe, so nothing was verified")
    elif score.results and not score.verified.scored and not report.unjudged:
        yield _reason("publish.vacuous", "no probe could judge any result")
    if report.unjudged:
        first = ", ".join(each.attempt_id for each in report.unjudged[:3])
        more = f" and {len(report.unjudged) - 3:,} more" if len(report.unjudged) > 3 else ""
        kinds = ", ".join(sorted({each.why or "not-run" for each in report.unjudged}))
        what = f"{plural(len(report.unjudged), 'result')} of {score.results:,} that no probe could judge ({kinds})"
        yield _reason("publish.unjudged", f"{what}: {first}{more}")
    if report.missing:
        first = ", ".join(each.trial for each in report.missing[:3])
        more = f" and {len(report.missing) - 3:,} more" if len(report.missing) > 3 else ""
        what = f"{plural(len(report.missing), 'trial')} of {score.trials:,} without a result: {first}{more}"
        yield _reason("publish.incomplete", what, todo_of="publish.running" if report.is_running else None)
    # Invalid evidence is reported by its findings.
    if unscored := {name: count for name, count in score.buckets.items() if name != INVALID}:
        number = plural(sum(unscored.values()), "result")
        by_bucket = ", ".join(f"{name} {count:,}" for name, count in sorted(unscored.items()))
        what = f"{number} of {score.results:,} failed for infrastructure reasons: {by_bucket}"
        yield _reason("publish.unscored", what)
    if report.replacements:
        trials = list(dict.fromkeys(each.trial for each in report.replacements))
        more = f" and {len(trials) - 3:,} more" if len(trials) > 3 else ""
        what = f"{plural(len(trials), 'scored result')} replaced on request: {', '.join(trials[:3])}{more}"
        yield _reason("publish.replaced", what, exit_=Exit.JUDGED_NO)
    if cancels := [row.attempt_id for row in report.operator_cancels]:
        more = f" and {len(cancels) - 3:,} more" if len(cancels) > 3 else ""
        what = f"{plural(len(cancels), 'attempt')} cancelled by the operator: {', '.join(cancels[:3])}{more}"
        yield _reason("publish.cancelled", what, exit_=Exit.JUDGED_NO)
    for gate in report.blocked:
        if gate.name == "coverage" and report.missing:
            continue  # publish.incomplete says so
        for line in gate.lines():
            yield _reason("publish.gate", f"{gate.name}: {line}", exit_=gate.exit)
    for name, finding in findings:
        what = f"{name}: {finding.file} {finding.detail}".rstrip()
        yield _reason(finding.code, what, exit_=exit_of_finding(finding))


def _has_probes(report: CampaignReport) -> bool:
    return any(row.summary is not None and row.summary.has_probes for row in report.counted_attempts)


def _reason(code: str, what: str, *, todo_of: str | None = None, exit_: Exit = Exit.UNVERIFIED) -> Reason:
    """Return a reason. `todo_of` is the code whose advice applies, if it is another one."""
    known = CODES.get(todo_of or code)
    return Reason(code=code, what=what, todo="" if known is None else known.todo, exit=exit_)
