"""What can be said of the evidence at a place, and how a report is held against it."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.attempt.recheck import examine, examine_run
from proctor.errors import Exit
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths, RunPaths
from proctor.evidence.reader import Finding
from proctor.evidence.unlisted_attempts import Owners, owners_of_runs
from proctor.evidence.validate import Status, Validation, conclude, validate_attempt
from proctor.ids import AttemptId
from proctor.ledger.reader import is_live, read_ledger
from proctor.plan.progress import fold_trials
from proctor.report.campaign_state import look_up
from proctor.report.check_campaign import check_campaign
from proctor.report.check_tally import miscounted
from proctor.report.find import Place, latest_campaign, root_of
from proctor.report.format_values import plural
from proctor.report.live import is_run_live, is_running, while_running
from proctor.report.planned import read_plan
from proctor.report.query import AttemptQuery, find_campaign, find_run, report_row, row_of_folder
from proctor.report.row import AttemptRow, Evidence

_EXIT = {Status.VALID: Exit.OK, Status.PARTIAL: Exit.UNVERIFIED, Status.INVALID: Exit.EVIDENCE}


class ExaminedItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One attempt, runtime process, run or campaign."""

    kind: str
    name: str
    run_id: str | None
    status: Status
    findings: tuple[Finding, ...]

    @property
    def is_running(self) -> bool:
        return any(finding.code == "evidence.running" for finding in self.findings)


class Examination(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything at a place; the worst of it is the whole's."""

    place: str
    is_strict: bool
    status: Status
    exit: int
    examined: tuple[ExaminedItem, ...]


def examine_place(place: Place, *, is_strict: bool) -> Examination:
    """Whatever lies there, this gives codes. A place with nothing in it is partial: nothing was shown to be whole."""
    examined = tuple(_examined(place, is_strict=is_strict))
    found = {each.status for each in examined} or {Status.PARTIAL}
    status = next(each for each in (Status.INVALID, Status.PARTIAL, Status.VALID) if each in found)
    return Examination(
        place=str(place.folder), is_strict=is_strict, status=status, exit=_EXIT[status], examined=examined
    )


def check_row(row: AttemptRow, *, is_strict: bool) -> tuple[Evidence, tuple[Finding, ...]]:
    """Derive everything again and compare. What differs is always told; only strict lets it decide."""
    if row.state == "running":
        return "partial", ()
    with AttemptFiles(AttemptPaths(Path(row.dir))) as files:
        found = examine(files, is_strict=True)
        status = found.status if is_strict else validate_attempt(files, is_strict=False).status
    return status.value, found.findings


def damage_of(campaign: CampaignPaths) -> dict[AttemptId, tuple[Finding, ...]]:
    """What a strict look finds wrong with the results of a campaign, or with what its ledger says of them.

    EvidenceError where ledger or plan cannot be read.
    """
    damage: dict[AttemptId, tuple[Finding, ...]] = {}
    root = root_of(campaign)
    attempts, retry_budget = look_up(read_ledger(campaign), root=root).attempts, read_plan(campaign).retry_budget
    results = {trial: standing.result for trial, standing in fold_trials(attempts, retry_budget=retry_budget).items()}
    rows = find_campaign(root, campaign).rows
    counted = dict(miscounted(campaign, rows))
    for row in rows:
        if row.trial is not None and row.n == results.get(row.trial):
            evidence, findings = check_row(row, is_strict=True)
            if row.attempt_id in counted:
                findings = (*findings, counted[row.attempt_id])
            if found := report_row(row, evidence=evidence, findings=findings).findings:
                damage[row.attempt_id] = found
    return damage


def _examined(place: Place, *, is_strict: bool) -> Iterator[ExaminedItem]:
    match place:
        case AttemptPaths():
            is_live_now = is_running(place)
            with AttemptFiles(place) as files:
                found = examine(files, is_strict=is_strict)
            yield _told(found, run_id=place.folder.absolute().parent.parent.name, is_live_now=is_live_now)
        case RunPaths():
            yield from _run(place, is_strict=is_strict)
        case CampaignPaths():
            yield from _campaign(place, is_strict=is_strict)
        case RootPaths():
            owners = owners_of_runs(place)
            for campaign in place.campaigns():
                yield _ledger(campaign, owners=owners)
            for run_paths in place.runs():
                yield from _run(run_paths, is_strict=is_strict)


def _run(run: RunPaths, *, is_strict: bool) -> Iterator[ExaminedItem]:
    is_live_now = is_run_live(run)  # asked first: what ends meanwhile is then told as running, not as cut off
    for found in examine_run(run, is_strict=is_strict):
        yield _told(found, run_id=run.folder.name, is_live_now=is_live_now)


def _told(found: Validation, *, run_id: str, is_live_now: bool) -> ExaminedItem:
    is_unfinished = is_live_now and found.status is Status.PARTIAL
    return ExaminedItem(
        kind=found.kind,
        name=found.name,
        run_id=run_id,
        status=found.status,
        findings=while_running(found.findings) if is_unfinished else found.findings,
    )


def _campaign(campaign: CampaignPaths, *, is_strict: bool) -> Iterator[ExaminedItem]:
    yield _ledger(campaign)
    root = root_of(campaign)
    for run_id in find_campaign(root, campaign).run_ids:
        run = root.run(run_id)
        if os.path.lexists(run.folder):
            yield from _run(run, is_strict=is_strict)
        else:
            # Killed before its first attempt; that it had sealed ones the ledger would say.
            gone = Finding(code="evidence.partial", file=run_id, detail="nothing was recorded")
            yield ExaminedItem(kind="run", name=run_id, run_id=run_id, status=Status.PARTIAL, findings=(gone,))


def _ledger(campaign: CampaignPaths, *, owners: Owners | None = None) -> ExaminedItem:
    """Whether the ledger reads, the evidence is what it says, and the files beside it are what the evidence gives."""
    root = root_of(campaign)
    found = find_campaign(root, campaign)
    rows = [report_row(row) for row in found.rows]
    findings = [
        *found.findings,
        *(
            Finding(code=finding.code, file=f"{row.attempt_id}/{finding.file}", detail=finding.detail)
            for row in rows
            for finding in row.findings
        ),
        *(
            Finding(code=finding.code, file=f"{attempt_id}/{finding.file}", detail=finding.detail)
            for attempt_id, finding in miscounted(campaign, found.rows)
        ),
        *check_campaign(campaign, root=root, found=found, owners=owners),
    ]
    is_cut_off = all(finding.code in ("evidence.partial", "evidence.running") for finding in findings)
    if found.missing_trials and is_cut_off:
        code, how = ("evidence.running", "not tried yet") if is_live(campaign) else ("evidence.partial", "never tried")
        untried = f"{plural(len(found.missing_trials), 'trial')} {how}"
        findings.append(Finding(code=code, file="ledger.db", detail=untried))
    told = conclude("campaign", campaign.folder.name, findings)
    status = Status.VALID if not findings else Status.PARTIAL if is_cut_off else Status.INVALID
    return ExaminedItem(kind="campaign", name=told.name, run_id=None, status=status, findings=told.findings)


def found_at(place: Place) -> AttemptQuery:
    """The attempts that a report of this place is about; of a root, its latest campaign."""
    match place:
        case AttemptPaths():
            row = row_of_folder(place)
            return AttemptQuery(campaign_id=row.campaign_id, run_ids=(row.run_id,), rows=(row,))
        case RunPaths():
            return find_run(place)
        case CampaignPaths():
            return find_campaign(root_of(place), place)
        case RootPaths():
            return find_campaign(place, latest_campaign(place))
