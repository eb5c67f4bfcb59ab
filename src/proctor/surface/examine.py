"""What can be said of the evidence at a place, and how a report is held against it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.attempt.recheck import examine, examine_run
from proctor.errors import Exit
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths, RunPaths
from proctor.evidence.reader import Problem
from proctor.evidence.validate import Status, validate_attempt
from proctor.report.place import Place, latest_campaign, root_of
from proctor.report.query import Found, find_campaign, find_run, report_row, row_of_folder
from proctor.report.row import AttemptRow, Evidence
from proctor.report.words import plural

_EXIT = {Status.VALID: Exit.OK, Status.PARTIAL: Exit.UNVERIFIED, Status.INVALID: Exit.EVIDENCE}


class Examined(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One attempt, runtime process, run or campaign."""

    kind: str
    name: str
    run_id: str | None
    status: Status
    problems: tuple[Problem, ...]


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
    paths = AttemptPaths(Path(row.dir))
    found = examine(paths, is_strict=True)
    status = found.status if is_strict else validate_attempt(paths, is_strict=False).status
    return status.value, found.problems


def _examined(place: Place, *, is_strict: bool) -> Iterator[Examined]:
    match place:
        case AttemptPaths():
            found = examine(place, is_strict=is_strict)
            run = place.folder.absolute().parent.parent.name
            yield Examined(kind=found.kind, name=found.name, run_id=run, status=found.status, problems=found.problems)
        case RunPaths():
            yield from _run(place, is_strict=is_strict)
        case CampaignPaths():
            yield from _campaign(place, is_strict=is_strict)
        case RootPaths():
            for campaign in place.campaigns():
                yield _ledger(campaign)
            for run_paths in place.runs():
                yield from _run(run_paths, is_strict=is_strict)


def _run(run: RunPaths, *, is_strict: bool) -> Iterator[Examined]:
    for found in examine_run(run, is_strict=is_strict):
        yield Examined(
            kind=found.kind,
            name=found.name,
            run_id=run.folder.name,
            status=found.status,
            problems=found.problems,
        )


def _campaign(campaign: CampaignPaths, *, is_strict: bool) -> Iterator[Examined]:
    yield _ledger(campaign)
    root = root_of(campaign)
    for run_id in find_campaign(root, campaign).run_ids:
        yield from _run(root.run(run_id), is_strict=is_strict)


def _ledger(campaign: CampaignPaths) -> Examined:
    """Whether the ledger reads, and the evidence is what it says."""
    found = find_campaign(root_of(campaign), campaign)
    rows = [report_row(row) for row in found.rows]
    problems = (
        *found.problems,
        *(
            Problem(code=problem.code, file=f"{row.attempt_id}/{problem.file}", detail=problem.detail)
            for row in rows
            for problem in row.problems
        ),
    )
    status = Status.INVALID if problems else Status.VALID
    if found.missing_cells and not problems:
        untried = f"{plural(len(found.missing_cells), 'cell')} never tried"
        problems, status = (Problem(code="evidence.partial", file="ledger.db", detail=untried),), Status.PARTIAL
    return Examined(kind="campaign", name=campaign.folder.name, run_id=None, status=status, problems=problems)


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
