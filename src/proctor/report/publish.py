"""Whether a campaign's results may be shown to others, with every reason why not. Pure."""

from collections.abc import Iterator

from proctor.errors import CODES, Exit
from proctor.evidence.reader import Finding
from proctor.ids import CampaignId
from proctor.report.campaign import CampaignReport
from proctor.report.format_values import plural
from proctor.report.score import INVALID, ReportStruct
from proctor.report.verdict import worst

_EXITS = {"publish.gate": Exit.JUDGED_NO}
_UNFINISHED = ("evidence.partial", "evidence.running")
"""What may still come; nothing that is there is wrong."""


class Reason(ReportStruct, frozen=True, kw_only=True):
    """A reason not to publish a campaign, and what to do about it."""

    code: str
    what: str
    todo: str

    @property
    def exit(self) -> Exit:
        if self.code.startswith("evidence.") and self.code not in _UNFINISHED:
            return Exit.EVIDENCE
        return _EXITS.get(self.code, Exit.UNVERIFIED)


class Publication(ReportStruct, frozen=True, kw_only=True):
    """What `campaign publish-check --json` prints."""

    schema_version: int = 1
    ok: bool
    exit: int
    campaign_id: CampaignId
    reasons: tuple[Reason, ...]


def judge_publication(report: CampaignReport, *, probes: int, findings: tuple[tuple[str, Finding], ...]) -> Publication:
    """`probes` were required of the results, all in all; `findings` are of the evidence, each with whose it is."""
    reasons = tuple(_reasons(report, probes=probes, findings=findings))
    code = worst({Exit.OK, *(reason.exit for reason in reasons)})
    return Publication(ok=not reasons, exit=code, campaign_id=report.campaign_id, reasons=reasons)


def _reasons(report: CampaignReport, *, probes: int, findings: tuple[tuple[str, Finding], ...]) -> Iterator[Reason]:
    if report.is_canary:
        yield _reason("publish.canary", f"{report.campaign_id} is a canary")
    if report.is_running:
        yield _reason("publish.running", f"{report.campaign_id} is being run")
    score = report.score
    if not score.trials:
        yield _reason("publish.vacuous", "the plan has no trial")
    elif score.results and not probes:
        yield _reason("publish.vacuous", "no probe was required of any result")
    elif score.results and not score.scored:
        yield _reason("publish.vacuous", "no result says whether an agent did what it was asked")
    if report.missing:
        first = ", ".join(each.trial for each in report.missing[:3])
        more = f" and {len(report.missing) - 3:,} more" if len(report.missing) > 3 else ""
        told = plural(len(report.missing), "trial")
        what = f"{told} of {score.trials:,} without a result: {first}{more}"
        yield _reason("publish.incomplete", what, todo_of="publish.running" if report.is_running else None)
    # What is wrong with damaged evidence is told by itself.
    if aside := {name: count for name, count in score.buckets.items() if name != INVALID}:
        told = plural(sum(aside.values()), "result")
        by = ", ".join(f"{name} {count:,}" for name, count in sorted(aside.items()))
        yield _reason("publish.unscored", f"{told} of {score.results:,} failed for another's reason: {by}")
    for gate in report.blocked:
        if gate.name == "coverage" and report.missing:
            continue  # all must be covered here, and that is said
        for line in gate.lines():
            yield _reason("publish.gate", f"{gate.name}: {line}")
    for whose, finding in findings:
        yield _reason(finding.code, f"{whose}: {finding.file} {finding.detail}".rstrip())


def _reason(code: str, what: str, *, todo_of: str | None = None) -> Reason:
    """`todo_of` is the code that says what to do, where it is another."""
    known = CODES.get(todo_of or code)
    return Reason(code=code, what=what, todo="" if known is None else known.todo)
