"""What can be said of the evidence at a place, and how a report is held against it."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.attempt.recheck import examine, examine_run
from proctor.errors import Exit
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths, RunPaths
from proctor.evidence.reader import Problem
from proctor.evidence.strays import Owners, owners_of_runs
from proctor.evidence.validate import Status, Validation, conclude, validate_attempt
from proctor.ids import AttemptId
from proctor.plan.standing import fold_cells
from proctor.report.check_campaign import check_campaign
from proctor.report.check_tally import miscounted
from proctor.report.ledger import is_live, read_ledger
from proctor.report.live import is_run_live, is_running, while_running
from proctor.report.place import Place, latest_campaign, root_of
from proctor.report.planned import read_plan
from proctor.report.query import Found, find_campaign, find_run, report_row, row_of_folder
from proctor.report.row import AttemptRow, Evidence
from proctor.report.standing import look_up
from proctor.report.words import plural

_EXIT = {Status.VALID: Exit.OK, Status.PARTIAL: Exit.UNVERIFIED, Status.INVALID: Exit.EVIDENCE}


class Examined(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One attempt, runtime process, run or campaign."""

    kind: str
    name: str
    run_id: str | None
    status: Status
    problems: tuple[Problem, ...]

    @property
    def is_running(self) -> bool:
        return any(problem.code == "evidence.running" for problem in self.problems)


class Examination(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything at a place; the worst of it is the whole's."""

    place: str
    is_strict: bool
    status: Status
    exit: int
    examined: tuple[Examined, ...]


def examine_place(place: Place, *, is_strict: bool) -> Examination:
    """Whatever lies there, this gives codes. A place with nothing in it is partial: nothing was shown to be whole."""
    examined = tuple(_examined(place, is_strict=is_strict))
    found = {each.status for each in examined} or {Status.PARTIAL}
    status = next(each for each in (Status.INVALID, Status.PARTIAL, Status.VALID) if each in found)
    return Examination(
        place=str(place.folder), is_strict=is_strict, status=status, exit=_EXIT[status], examined=examined
    )


def check_row(row: AttemptRow, *, is_strict: bool) -> tuple[Evidence, tuple[Problem, ...]]:
    """Derive everything again and compare. What differs is always told; only strict lets it decide."""
    if row.state == "running":
        return "partial", ()
    paths = AttemptPaths(Path(row.dir))
    found = examine(paths, is_strict=True)
    status = found.status if is_strict else validate_attempt(paths, is_strict=False).status
    return status.value, found.problems


def damage_of(campaign: CampaignPaths) -> dict[AttemptId, tuple[Problem, ...]]:
    """What a strict look finds wrong with the results of a campaign, or with what its ledger says of them.

    EvidenceError where ledger or plan cannot be read.
    """
    damage: dict[AttemptId, tuple[Problem, ...]] = {}
    root = root_of(campaign)
    attempts, patience = look_up(read_ledger(campaign), root=root).attempts, read_plan(campaign).patience
    results = {cell: standing.result for cell, standing in fold_cells(attempts, patience=patience).items()}
    rows = find_campaign(root, campaign).rows
    counted = dict(miscounted(campaign, rows))
    for row in rows:
        if row.cell is not None and row.n == results.get(row.cell):
            evidence, problems = check_row(row, is_strict=True)
            if row.attempt_id in counted:
                problems = (*problems, counted[row.attempt_id])
            if found := report_row(row, evidence=evidence, problems=problems).problems:
                damage[row.attempt_id] = found
    return damage


def _examined(place: Place, *, is_strict: bool) -> Iterator[Examined]:
    match place:
        case AttemptPaths():
            is_live_now = is_running(place)
            found = examine(place, is_strict=is_strict)
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


def _run(run: RunPaths, *, is_strict: bool) -> Iterator[Examined]:
    is_live_now = is_run_live(run)  # asked first: what ends meanwhile is then told as running, not as cut off
    for found in examine_run(run, is_strict=is_strict):
        yield _told(found, run_id=run.folder.name, is_live_now=is_live_now)


def _told(found: Validation, *, run_id: str, is_live_now: bool) -> Examined:
    is_unfinished = is_live_now and found.status is Status.PARTIAL
    return Examined(
        kind=found.kind,
        name=found.name,
        run_id=run_id,
        status=found.status,
        problems=while_running(found.problems) if is_unfinished else found.problems,
    )


def _campaign(campaign: CampaignPaths, *, is_strict: bool) -> Iterator[Examined]:
    yield _ledger(campaign)
    root = root_of(campaign)
    for run_id in find_campaign(root, campaign).run_ids:
        run = root.run(run_id)
        if os.path.lexists(run.folder):
            yield from _run(run, is_strict=is_strict)
        else:
            # Killed before its first attempt; that it had sealed ones the ledger would say.
            gone = Problem(code="evidence.partial", file=run_id, detail="nothing was recorded")
            yield Examined(kind="run", name=run_id, run_id=run_id, status=Status.PARTIAL, problems=(gone,))


def _ledger(campaign: CampaignPaths, *, owners: Owners | None = None) -> Examined:
    """Whether the ledger reads, the evidence is what it says, and the files beside it are what the evidence gives."""
    root = root_of(campaign)
    found = find_campaign(root, campaign)
    rows = [report_row(row) for row in found.rows]
    problems = [
        *found.problems,
        *(
            Problem(code=problem.code, file=f"{row.attempt_id}/{problem.file}", detail=problem.detail)
            for row in rows
            for problem in row.problems
        ),
        *(
            Problem(code=problem.code, file=f"{attempt_id}/{problem.file}", detail=problem.detail)
            for attempt_id, problem in miscounted(campaign, found.rows)
        ),
        *check_campaign(campaign, root=root, found=found, owners=owners),
    ]
    is_cut_off = all(problem.code in ("evidence.partial", "evidence.running") for problem in problems)
    if found.missing_cells and is_cut_off:
        code, how = ("evidence.running", "not tried yet") if is_live(campaign) else ("evidence.partial", "never tried")
        untried = f"{plural(len(found.missing_cells), 'cell')} {how}"
        problems.append(Problem(code=code, file="ledger.db", detail=untried))
    told = conclude("campaign", campaign.folder.name, problems)
    status = Status.VALID if not problems else Status.PARTIAL if is_cut_off else Status.INVALID
    return Examined(kind="campaign", name=told.name, run_id=None, status=status, problems=told.problems)


def found_at(place: Place) -> Found:
    """The attempts that a report of this place is about; of a root, its latest campaign."""
    match place:
        case AttemptPaths():
            row = row_of_folder(place)
            return Found(campaign_id=row.campaign_id, run_ids=(row.run_id,), rows=(row,))
        case RunPaths():
            return find_run(place)
        case CampaignPaths():
            return find_campaign(root_of(place), place)
        case RootPaths():
            return find_campaign(place, latest_campaign(place))
