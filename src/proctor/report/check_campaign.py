"""Check a campaign's own folder against its attempts: ledger, plan, frozen spec, report."""

import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from msgspec.structs import asdict, fields, replace

from proctor.canonical import digest_bytes
from proctor.errors import EvidenceError, Exit
from proctor.evidence.artifacts import PlanFile
from proctor.evidence.disk import draft_path, unreadable
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths
from proctor.evidence.reader import Finding, decode_artifact, read_bytes
from proctor.evidence.unlisted_attempts import Owners, find_unlisted_attempts
from proctor.ids import AttemptId, RunId
from proctor.ledger.reader import is_live
from proctor.report.campaign import CampaignReport, build_report
from proctor.report.campaign_state import CampaignState
from proctor.report.check_ledger import folder_findings, read_limits
from proctor.report.check_regrades import check_regrades
from proctor.report.evidence_index import EvidenceIndex, paths_of
from proctor.report.markdown import render_markdown
from proctor.report.planned import read_plan_bytes
from proctor.report.row import AttemptRow


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignListing:
    """What is on disk, listed and read before the ledger is.

    The ledger names an attempt before its folder exists. So a folder in this list that the ledger does not name is
    unlisted, even while the campaign runs. The ledger knows the end of a run before its report is written. So the
    report is about all runs that the ledger knows, or about earlier ones.
    """

    is_running: bool
    """Whether the campaign was running then."""
    attempts: Mapping[RunId, tuple[str, ...]]
    """Names of the attempt folders of the campaign's runs, and of runs whose campaign is unknown."""
    owners: Owners
    """The campaign of each run, as its attempts say."""
    report: bytes | EvidenceError
    """Content of report.json."""
    results: bytes | EvidenceError
    """Content of RESULTS.md."""

    @property
    def unfinished(self) -> str:
        """The code of what is not complete."""
        return "evidence.running" if self.is_running else "evidence.partial"


def list_campaign(campaign: CampaignPaths, *, root: RootPaths, owners: Owners) -> CampaignListing:
    """List what is on disk of a campaign. Never raises."""
    is_running = is_live(campaign)  # asked first: what is written meanwhile is then incomplete, not cut off
    attempts: dict[RunId, tuple[str, ...]] = {}
    for run in root.runs():
        run_id = RunId(run.folder.name)
        if owners.get(run_id, campaign.folder.name) == campaign.folder.name:
            with suppress(OSError):
                attempts[run_id] = tuple(sorted(paths.folder.name for paths in run.attempts()))
    return CampaignListing(
        is_running=is_running,
        attempts=attempts,
        owners=owners,
        report=_read(campaign.report),
        results=_read(campaign.results),
    )


def _read(path: Path) -> bytes | EvidenceError:
    try:
        return read_bytes(path)
    except EvidenceError as error:
        return error


def check_campaign(
    campaign: CampaignPaths, *, root: RootPaths, state: CampaignState, listing: CampaignListing, index: EvidenceIndex
) -> Iterator[Finding]:
    """Check the campaign's own files and the ledger's rows. Never raises.

    `state` is what the ledger says, without a check of the folders; or what the folders say if it cannot be read.
    """
    rows = list(check_rows(campaign, state, index))
    for attempt_id, finding in rows:
        yield Finding(code=finding.code, file=f"{attempt_id}/{finding.file}", detail=finding.detail)
    unsound = {attempt_id for attempt_id, _ in rows}
    yield from check_files(campaign, root=root, state=state, listing=listing, index=index, unsound=unsound)


def check_files(
    campaign: CampaignPaths,
    *,
    root: RootPaths,
    state: CampaignState,
    listing: CampaignListing,
    index: EvidenceIndex,
    unsound: Collection[AttemptId],
) -> Iterator[Finding]:
    """Check the campaign's own files. `unsound` are the attempts that `check_rows` finds something wrong with."""
    yield from _check_names(campaign)
    yield from check_regrades(campaign)
    plan = list(_check_plan(campaign, root=root, state=state, listing=listing, index=index))
    yield from plan
    # What is wrong with the plan or the ledger makes the report wrong, which is reported already.
    can_compare = not state.findings and not any(each.file == campaign.plan.name for each in plan)
    comparable = unsound if can_compare else None
    yield from _check_report(campaign, root=root, state=state, listing=listing, unsound=comparable)
    yield from _missing_numbers(state)
    yield from _unlisted(state, listing)


def check_rows(
    campaign: CampaignPaths, state: CampaignState, index: EvidenceIndex
) -> Iterator[tuple[AttemptId, Finding]]:
    """Compare the ledger's row of each attempt with the attempt's folder."""
    if state.has_ledger:
        limits = read_limits(campaign, state=state, read=index.read_file)
        for trial in state.trials:
            attempts = () if trial.id is None else state.contents.attempts_of.get(trial.id, ())
            for row, attempt in zip(trial.attempts, attempts, strict=True):
                for finding in folder_findings(row, attempt, index.read(paths_of(row)), limits=limits):
                    yield row.attempt_id, finding


def _missing_numbers(state: CampaignState) -> Iterator[Finding]:
    """Yield attempts that the ledger does not name although it names a later one of the same trial."""
    for trial, attempts in state.contents.attempts_of.items():
        if attempts[-1].n != len(attempts):
            known = {each.n for each in attempts}
            n = next(n for n in count(1) if n not in known)
            detail = f"attempt {n} of {trial} is missing, but not attempt {attempts[-1].n}"
            yield Finding(code="evidence.ledger", file="ledger.db", detail=detail)


def _unlisted(state: CampaignState, listing: CampaignListing) -> Iterator[Finding]:
    """Yield attempts on disk that the ledger does not name."""
    if not state.has_ledger:
        return
    named: dict[RunId, set[str]] = {run_id: set() for run_id in state.run_ids}
    for row in state.attempts:
        named.setdefault(row.run_id, set()).add(row.attempt_id)
    for run_id, name in find_unlisted_attempts(
        state.campaign_id,
        named=named,
        owners=listing.owners,
        on_disk=lambda run_id: listing.attempts.get(run_id, ()),
    ):
        detail = "on disk, but not in the ledger"
        yield Finding(code="evidence.ledger", file=f"{run_id}/{name}", detail=detail)


def _check_names(campaign: CampaignPaths) -> Iterator[Finding]:
    """Yield files that are not part of a campaign."""
    known = {campaign.spec_snapshot, campaign.plan, campaign.ledger, campaign.report, campaign.results, campaign.pin}
    # Written while it runs, and left by a kill; not evidence.
    known |= {campaign.live, draft_path(campaign.live), campaign.regrades}
    drafts = {draft_path(path) for path in (campaign.plan, campaign.report, campaign.results) if not path.exists()}
    if not campaign.results.exists():
        drafts.add(draft_path(campaign.report))  # RESULTS.md is removed before the report is written again
    logs = {f"{campaign.ledger.name}{end}" for end in ("-wal", "-shm", "-journal")}
    yield from _extra_files(campaign.folder, known={path.name for path in (*known, *drafts)} | logs | {"lock"})


def _check_plan(
    campaign: CampaignPaths, *, root: RootPaths, state: CampaignState, listing: CampaignListing, index: EvidenceIndex
) -> Iterator[Finding]:
    try:
        data = read_plan_bytes(campaign)
        file = decode_artifact(data, PlanFile, file=campaign.plan.name)
    except EvidenceError as error:
        # The plan is the last file of the set-up, so without any attempt it may not have been written yet.
        is_early = error.code == "evidence.missing-file" and not state.attempts
        code = listing.unfinished if is_early else error.code
        yield Finding(code=code, file=campaign.plan.name, detail=error.what)
        return
    if state.has_ledger:
        origin, trials = state.contents.campaign, state.contents.trials
        is_same = origin is not None and origin.plan == file.plan.digest
        if not is_same or [asdict(trial) for trial in trials] != [asdict(trial) for trial in file.plan.trials]:
            detail = f"its plan is not that of {campaign.plan.name}"
            yield Finding(code="evidence.ledger", file=campaign.ledger.name, detail=detail)
    digests = (file.plan.digest, digest_bytes(data))
    for run_id in state.run_ids:
        for name in listing.attempts.get(run_id, ()):
            named = index.read(AttemptPaths(root.run(run_id).folder / "attempts" / name)).plan_digests
            if named not in (None, digests):
                detail = f"not the plan that {name} names"
                yield Finding(code="evidence.plan", file=campaign.plan.name, detail=detail)
                return  # what it says about the frozen spec proves nothing
    yield from _check_snapshot(campaign.spec_snapshot, file, index)


def _check_snapshot(folder: Path, file: PlanFile, index: EvidenceIndex) -> Iterator[Finding]:
    yield from _extra_files(folder, known=set(file.snapshot), prefix=f"{folder.name}/")
    for name, due in file.snapshot.items():
        try:
            is_same = digest_bytes(index.read_file(folder / name)) == due
        except EvidenceError as error:
            yield Finding(code=error.code, file=f"{folder.name}/{name}", detail=error.what)
            continue
        if not is_same:
            yield Finding(
                code="evidence.plan", file=f"{folder.name}/{name}", detail="not the file that plan.json names"
            )


def _check_report(
    campaign: CampaignPaths,
    *,
    root: RootPaths,
    state: CampaignState,
    listing: CampaignListing,
    unsound: Collection[AttemptId] | None,
) -> Iterator[Finding]:
    """Compare report.json with a report composed again, and RESULTS.md with report.json.

    `unsound` are attempts that cannot be compared; None if nothing can.
    """
    try:
        if isinstance(listing.report, EvidenceError):
            raise listing.report
        kept = decode_artifact(listing.report, CampaignReport, file=campaign.report.name)
    except EvidenceError as error:
        is_early = error.code == "evidence.missing-file" and _is_absent(listing.results)
        code = listing.unfinished if is_early else error.code
        yield Finding(code=code, file=campaign.report.name, detail=error.what)
        return
    earlier = state.run_ids[: len(kept.run_ids)]
    if kept.run_ids and kept.run_ids == earlier != state.run_ids:
        # It is written when a run ends; until then, or after a kill, it is about the runs before.
        detail = "of the runs before the last one"
        yield Finding(code=listing.unfinished, file=campaign.report.name, detail=detail)
    elif unsound is not None:
        yield from _differences(campaign.report.name, kept, root=root, state=state, unsound=unsound)
    if isinstance(listing.results, EvidenceError):
        code = listing.unfinished if _is_absent(listing.results) else listing.results.code
        yield Finding(code=code, file=campaign.results.name, detail=listing.results.what)
    elif listing.results != render_markdown(kept).encode(errors="backslashreplace"):
        # A run that ended meanwhile may have written the one before and the other after it was read.
        is_written = _read(campaign.report) != listing.report
        detail = f"not what {campaign.report.name} gives"
        code = listing.unfinished if is_written else "evidence.report"
        yield Finding(code=code, file=campaign.results.name, detail=detail)


def _is_absent(content: bytes | EvidenceError) -> bool:
    return isinstance(content, EvidenceError) and content.code == "evidence.missing-file"


def _differences(
    name: str, kept: CampaignReport, *, root: RootPaths, state: CampaignState, unsound: Collection[AttemptId]
) -> Iterator[Finding]:
    """Yield where a report differs from the one composed again, field by field."""
    # Only the report itself says that the run was interrupted.
    ended = dataclasses.replace(state, is_running=False)
    again = build_report(ended, is_interrupted=kept.exit == Exit.INTERRUPTED)
    rows = {row.ref: row for row in kept.attempts}
    # Sums over attempts whose ledger row or folder is wrong are wrong too, which is reported already.
    # Where the spec was is not evidence: it may move.
    whole = replace(again, attempts=(), spec_file=kept.spec_file)
    if not unsound and (differing := _fields(replace(kept, attempts=()), whole)):
        detail = f"not what the attempts give: {', '.join(differing)}"
        yield Finding(code="evidence.report", file=name, detail=detail)
    if [row.ref for row in kept.attempts] != [row.ref for row in again.attempts]:
        yield Finding(code="evidence.report", file=name, detail="not what the attempts give: attempts")
    for row in again.attempts:
        there = rows.get(row.ref)
        if there is None or row.attempt_id in unsound:
            continue
        if wrong := _fields(there, _as_kept(row, there, root=root)):
            detail = f"not what {row.attempt_id} says: {', '.join(wrong)}"
            yield Finding(code="evidence.report", file=name, detail=detail)


def _as_kept(row: AttemptRow, kept: AttemptRow, *, root: RootPaths) -> AttemptRow:
    # Why an attempt has no seal is in no file of the attempt.
    detail = row.detail if row.state == "sealed" else kept.detail
    return replace(row, dir=os.path.relpath(row.dir, root.folder), detail=detail)


def _fields(kept: CampaignReport | AttemptRow, again: CampaignReport | AttemptRow) -> list[str]:
    """Return the names of the fields that differ."""
    return [field.name for field in fields(kept) if getattr(kept, field.name) != getattr(again, field.name)]


def _extra_files(folder: Path, *, known: set[str], prefix: str = "") -> Iterator[Finding]:
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
