"""Whether a campaign's own folder says what its attempts' seals vouch for: the plan, the frozen spec, the report."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import asdict, fields, replace

from proctor.canonical import digest_bytes
from proctor.errors import EvidenceError, Exit
from proctor.evidence.artifacts import AttemptRecord, PlanFile
from proctor.evidence.disk import draft_path, unreadable
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.reader import Finding, read_artifact, read_bytes
from proctor.evidence.unlisted_attempts import Owners, find_unlisted_attempts, owners_of_runs
from proctor.ids import CampaignId, RunId
from proctor.ledger.reader import is_live, read_ledger
from proctor.report.compose import compose
from proctor.report.markdown import render_markdown
from proctor.report.query import AttemptQuery
from proctor.report.row import AttemptRow, Report


def check_campaign(
    campaign: CampaignPaths, *, root: RootPaths, found: AttemptQuery, owners: Owners | None = None
) -> Iterator[Finding]:
    """What is wrong with the files beside the ledger, where `found` is what is on record. Never raises.

    `owners` are those of the runs, for whoever knows them already.
    """
    # Asked first: what is written meanwhile is then told as not there yet, not as cut off.
    unfinished = "evidence.running" if is_live(campaign) else "evidence.partial"
    known = {campaign.spec_snapshot, campaign.plan, campaign.ledger, campaign.report, campaign.results, campaign.pin}
    # What it is at while it runs is no evidence; a killed one leaves it.
    known |= {campaign.live, draft_path(campaign.live)}
    drafts = {draft_path(path) for path in (campaign.plan, campaign.report, campaign.results) if not path.exists()}
    if not campaign.results.exists():
        drafts.add(draft_path(campaign.report))  # it goes before its report is made anew
    logs = {f"{campaign.ledger.name}{end}" for end in ("-wal", "-shm", "-journal")}
    yield from _strangers(campaign.folder, known={path.name for path in (*known, *drafts)} | logs | {"lock"})
    yield from _check_plan(campaign, root=root, found=found, unfinished=unfinished)
    yield from _check_report(campaign, root=root, found=found, unfinished=unfinished)
    yield from _unnamed(campaign, root=root, owners=owners_of_runs(root) if owners is None else owners)


def _unnamed(campaign: CampaignPaths, *, root: RootPaths, owners: Owners) -> Iterator[Finding]:
    """Attempts that the ledger has lost, or never had."""
    campaign_id = CampaignId(campaign.folder.name)
    with suppress(EvidenceError):  # whoever reads the attempts from it has said so
        if not (found := list(find_unlisted_attempts(root, campaign_id, named=_named(campaign), owners=owners))):
            return
        # Looked at again: of one that is being run the ledger is told first, and then there is a folder.
        named = _named(campaign)
        for folder in (paths.folder for paths in found):
            run_id = RunId(folder.parent.parent.name)
            if folder.name not in named.get(run_id, ()):
                detail = "on disk, but not in the ledger"
                yield Finding(code="evidence.ledger", file=f"{run_id}/{folder.name}", detail=detail)


def _named(campaign: CampaignPaths) -> dict[RunId, set[str]]:
    contents = read_ledger(campaign)
    named: dict[RunId, set[str]] = {run.id: set() for run in contents.runs}
    for each in contents.attempts:
        named.setdefault(each.run, set()).add(each.id)
    return named


def _check_plan(campaign: CampaignPaths, *, root: RootPaths, found: AttemptQuery, unfinished: str) -> Iterator[Finding]:
    try:
        data = read_bytes(campaign.plan)
        file = read_artifact(campaign.plan, PlanFile)
    except EvidenceError as error:
        # The plan is the last file of the set-up: without any attempt it may not have come to that.
        is_early = error.code == "evidence.missing-file" and not found.rows
        yield Finding(code=unfinished if is_early else error.code, file=campaign.plan.name, detail=error.what)
        return
    with suppress(EvidenceError):  # whoever reads the attempts from it has said so
        contents = read_ledger(campaign)
        is_of = contents.campaign is not None and contents.campaign.plan == file.plan.digest
        if not is_of or [asdict(trial) for trial in contents.trials] != [asdict(trial) for trial in file.plan.trials]:
            detail = f"its plan is not that of {campaign.plan.name}"
            yield Finding(code="evidence.ledger", file=campaign.ledger.name, detail=detail)
    for record in _records(root, found):
        if (record.plan_digest, record.plan_file_digest) != (file.plan.digest, digest_bytes(data)):
            detail = f"not the plan that {record.attempt_id} names"
            yield Finding(code="evidence.plan", file=campaign.plan.name, detail=detail)
            return  # what it says of the frozen spec is worth nothing
    yield from _check_snapshot(campaign.spec_snapshot, file)


def _records(root: RootPaths, found: AttemptQuery) -> Iterator[AttemptRecord]:
    """Of every attempt that has one; what is wrong with the others, their own examination tells."""
    for run_id in found.run_ids:
        with suppress(OSError):
            for paths in root.run(run_id).attempts():
                with suppress(EvidenceError):
                    yield read_artifact(paths.attempt, AttemptRecord)


def _check_snapshot(folder: Path, file: PlanFile) -> Iterator[Finding]:
    yield from _strangers(folder, known=set(file.snapshot), prefix=f"{folder.name}/")
    for name, due in file.snapshot.items():
        try:
            is_same = digest_bytes(read_bytes(folder / name)) == due
        except EvidenceError as error:
            yield Finding(code=error.code, file=f"{folder.name}/{name}", detail=error.what)
            continue
        if not is_same:
            yield Finding(
                code="evidence.plan", file=f"{folder.name}/{name}", detail="not the file that plan.json names"
            )


def _check_report(
    campaign: CampaignPaths, *, root: RootPaths, found: AttemptQuery, unfinished: str
) -> Iterator[Finding]:
    try:
        kept = read_artifact(campaign.report, Report)
    except EvidenceError as error:
        is_early = error.code == "evidence.missing-file" and not os.path.lexists(campaign.results)
        yield Finding(code=unfinished if is_early else error.code, file=campaign.report.name, detail=error.what)
        return
    if set(kept.run_ids) < set(found.run_ids):
        # Made anew when a run ends: until then, and where that was killed, it is of the runs before.
        detail = "of the runs before the last one"
        yield Finding(code=unfinished, file=campaign.report.name, detail=detail)
    elif not found.findings and _has_plan(campaign):  # else there is nothing whole to hold it against, as is told
        yield from _differences(campaign.report.name, kept, root=root, found=found)
    try:
        results = read_bytes(campaign.results)
    except EvidenceError as error:
        is_early = error.code == "evidence.missing-file"
        yield Finding(code=unfinished if is_early else error.code, file=campaign.results.name, detail=error.what)
        return
    if results != render_markdown(kept).encode(errors="backslashreplace"):
        detail = f"not what {campaign.report.name} gives"
        yield Finding(code="evidence.report", file=campaign.results.name, detail=detail)


def _has_plan(campaign: CampaignPaths) -> bool:
    """Its gates stand there, without which nothing can be judged again."""
    try:
        read_artifact(campaign.plan, PlanFile)
    except EvidenceError:
        return False
    return True


def _differences(name: str, kept: Report, *, root: RootPaths, found: AttemptQuery) -> Iterator[Finding]:
    """The report composed again, and compared field by field."""
    # That somebody interrupted it stands nowhere else.
    again = compose(found, is_interrupted=kept.exit == Exit.INTERRUPTED)
    told = {row.ref: row for row in kept.attempts}
    whole = replace(kept, attempts=())
    if any(row.findings for row in again.attempts) or not again.gates:
        # The verdict was of what the damaged attempts said then, and of the plan's gates; what is wrong there is told.
        whole = replace(whole, exit=again.exit, verdict=again.verdict, gates=whole.gates if again.gates else ())
    differing = _fields(whole, replace(again, attempts=()))
    if [row.ref for row in kept.attempts] != [row.ref for row in again.attempts]:
        differing.append("attempts")
    if differing:
        detail = f"not what the attempts give: {', '.join(differing)}"
        yield Finding(code="evidence.report", file=name, detail=detail)
    for row in again.attempts:
        there = told.get(row.ref)
        if there is not None and not row.findings and (wrong := _fields(there, _as_kept(row, there, root=root))):
            detail = f"not what {row.attempt_id} says: {', '.join(wrong)}"
            yield Finding(code="evidence.report", file=name, detail=detail)


def _as_kept(row: AttemptRow, kept: AttemptRow, *, root: RootPaths) -> AttemptRow:
    # Why an attempt has no seal stands in no file of its own.
    detail = row.detail if row.state == "sealed" else kept.detail
    return replace(row, dir=os.path.relpath(row.dir, root.folder), detail=detail)


def _fields(kept: Report | AttemptRow, again: Report | AttemptRow) -> list[str]:
    """Names of the fields that differ."""
    return [field.name for field in fields(kept) if getattr(kept, field.name) != getattr(again, field.name)]


def _strangers(folder: Path, *, known: set[str], prefix: str = "") -> Iterator[Finding]:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        yield Finding.of(unreadable(error, path=folder))
        return
    for name in names:
        if name not in known:
            yield Finding(code="evidence.extra-file", file=f"{prefix}{name}", detail="not a part of a campaign")
