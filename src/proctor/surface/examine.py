"""Examine the evidence at a place, and load reports that are checked against it."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum

import msgspec

from proctor.attempt.recheck import examine, examine_run
from proctor.errors import Exit
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths, RunPaths
from proctor.evidence.reader import Finding
from proctor.evidence.unlisted_attempts import Owners, owners_of_runs
from proctor.evidence.validate import Status, Validation, conclude, validate_attempt
from proctor.ids import CampaignId, RunId
from proctor.report.campaign import CampaignReport, build_report, load_campaign_state
from proctor.report.campaign_state import CampaignState, load_folders, load_run, without_check
from proctor.report.check_campaign import CampaignListing, check_campaign, check_files, check_rows, list_campaign
from proctor.report.evidence_index import EvidenceIndex
from proctor.report.find import Place, latest_campaign, root_of
from proctor.report.format_values import plural
from proctor.report.live import is_run_live, is_running, while_running
from proctor.report.row import Evidence
from proctor.report.verdict import exit_of_finding

_CUT_OFF = {"evidence.partial", "evidence.torn"}


class ItemStatus(StrEnum):
    """Result of the examination of one thing."""

    VALID = Status.VALID.value
    """Nothing that was checked is wrong."""
    ABANDONED = "abandoned"
    """It was cut off, and the campaign is complete without it: a later sealed attempt of the same trial counts."""
    PARTIAL = Status.PARTIAL.value
    """Nothing is wrong, but the evidence was cut off, or a part of it cannot be checked on this machine."""
    INVALID = Status.INVALID.value
    """Something is wrong."""


_EXIT = {ItemStatus.VALID: Exit.OK, ItemStatus.PARTIAL: Exit.UNVERIFIED, ItemStatus.INVALID: Exit.EVIDENCE}


class ExaminedItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One attempt, agent process, run or campaign."""

    kind: str
    """`attempt`, `process`, `run` or `campaign`."""
    name: str
    """Name of its folder."""
    run_id: str | None
    """Its run; null for a campaign."""
    status: ItemStatus
    """Result of the examination."""
    findings: tuple[Finding, ...]
    """What is wrong."""

    @property
    def is_running(self) -> bool:
        """Whether it is being written."""
        return any(finding.code == "evidence.running" for finding in self.findings)


class Examination(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `validate --json` prints."""

    place: str
    """The folder that was examined."""
    is_strict: bool
    """Whether everything was checked, and not only the seals."""
    status: ItemStatus
    """The worst status of all items: `invalid`, `partial` or `valid`. Abandoned items count as valid."""
    exit: int
    """The exit code of the command."""
    examined: tuple[ExaminedItem, ...]
    """Everything that was examined."""


def examine_place(place: Place, *, is_strict: bool) -> Examination:
    """Examine whatever is at a place. An empty place is partial: nothing was shown to be complete."""
    examined = tuple(_examined(place, is_strict=is_strict))
    found = {each.status for each in examined} or {ItemStatus.PARTIAL}
    worst = (each for each in (ItemStatus.INVALID, ItemStatus.PARTIAL) if each in found)
    status = next(worst, ItemStatus.VALID)
    return Examination(
        place=str(place.folder), is_strict=is_strict, status=status, exit=_EXIT[status], examined=examined
    )


# ── reports ──


def load_report(place: Place, *, is_strict: bool) -> CampaignReport:
    """Load the report of a place, checked against the evidence; of a root, of its latest campaign.

    Every finding about attempts is reported. Without `is_strict` only a broken seal makes an attempt invalid, and the
    campaign's own files are not checked.
    """

    def check(files: AttemptFiles) -> tuple[Evidence, tuple[Finding, ...]]:
        found = examine(files, is_strict=True)
        status = found.status if is_strict else validate_attempt(files, is_strict=False).status
        return status.value, found.findings

    return build_report(_load_state(place, EvidenceIndex(check, is_strict)))


def _load_state(place: Place, index: EvidenceIndex) -> CampaignState:
    match place:
        case AttemptPaths():
            return load_folders([place], index=index)
        case RunPaths():
            return load_run(place, index=index)
        case CampaignPaths():
            return _load_campaign(place, root_of(place), index)
        case RootPaths():
            return _load_campaign(latest_campaign(place), place, index)


def _load_campaign(campaign: CampaignPaths, root: RootPaths, index: EvidenceIndex) -> CampaignState:
    """Load a campaign. A strict report checks its files as `validate` does; the rows have their own findings."""
    if not index.is_strict:
        return load_campaign_state(campaign, root=root, index=index)
    listing = list_campaign(campaign, root=root, owners={})
    state = load_campaign_state(campaign, root=root, index=index)
    known = dict.fromkeys(state.run_ids, state.campaign_id or CampaignId(""))
    listing = replace(listing, owners=owners_of_runs(root, known=known))
    plain = without_check(state, root=root, index=index)
    unsound = {attempt_id for attempt_id, _ in check_rows(campaign, plain, index)}
    found = check_files(campaign, root=root, state=plain, listing=listing, index=index, unsound=unsound)
    # With a ledger, the only finding is about the plan, which check_files reports more precisely.
    return replace(state, findings=(*(() if state.has_ledger else state.findings), *found))


# ── examinations ──


def _examined(place: Place, *, is_strict: bool) -> Iterator[ExaminedItem]:
    match place:
        case AttemptPaths():
            is_live_now = is_running(place)
            with AttemptFiles(place) as files:
                found = examine(files, is_strict=is_strict)
            yield _item(found, run_id=place.folder.absolute().parent.parent.name, is_live_now=is_live_now)
        case RunPaths():
            is_live_now = is_run_live(place)
            yield from _examine_run(place, EvidenceIndex(), is_strict=is_strict, is_live_now=is_live_now)
        case CampaignPaths():
            yield from examine_campaign(place, is_strict=is_strict)[1]
        case RootPaths():
            yield from _examine_root(place, is_strict=is_strict)


def _examine_root(root: RootPaths, *, is_strict: bool) -> Iterator[ExaminedItem]:
    index = EvidenceIndex()
    owners = _owners(root, index)
    campaigns = []
    for campaign in root.campaigns():
        listing = list_campaign(campaign, root=root, owners=owners)
        campaigns.append((campaign, listing, load_campaign_state(campaign, root=root, index=index)))
    running = {campaign.folder.name for campaign, listing, _ in campaigns if listing.is_running}
    items: list[ExaminedItem] = []
    for run in root.runs():
        owner = owners.get(RunId(run.folder.name))
        # A run that has just begun has no attempt yet that says whose it is.
        is_live_now = bool(running) if owner is None else owner in running
        items += _examine_run(run, index, is_strict=is_strict, is_live_now=is_live_now)
    for campaign, listing, state in campaigns:
        yield _campaign_item(campaign, state=state, listing=listing, index=index)
        items = _mark_abandoned(items, state)
    yield from items


def _owners(root: RootPaths, index: EvidenceIndex) -> Owners:
    return owners_of_runs(root, campaign_of=lambda paths: index.read(paths).row.campaign_id)


def examine_campaign(campaign: CampaignPaths, *, is_strict: bool) -> tuple[CampaignState, tuple[ExaminedItem, ...]]:
    """Examine a campaign and its runs. Return also its state, without a check of the folders."""
    root, index = root_of(campaign), EvidenceIndex()
    listing = list_campaign(campaign, root=root, owners=_owners(root, index))
    state = load_campaign_state(campaign, root=root, index=index)
    items: list[ExaminedItem] = []
    for run_id in state.run_ids:
        run = root.run(run_id)
        if os.path.lexists(run.folder):
            items += _examine_run(run, index, is_strict=is_strict, is_live_now=listing.is_running)
        else:
            # Killed before its first attempt; the ledger would know of sealed ones.
            gone = Finding(code="evidence.partial", file=run_id, detail="nothing was recorded")
            items.append(
                ExaminedItem(kind="run", name=run_id, run_id=run_id, status=ItemStatus.PARTIAL, findings=(gone,))
            )
    return state, (_campaign_item(campaign, state=state, listing=listing, index=index), *_mark_abandoned(items, state))


def _mark_abandoned(items: Iterable[ExaminedItem], state: CampaignState) -> list[ExaminedItem]:
    """Return the items of a campaign, with what was cut off and is not needed any more as abandoned.

    An attempt is abandoned if a later sealed attempt of its trial counts. The processes and the folder of a killed run
    are abandoned if every trial has a result.
    """
    replaced = {
        (row.run_id, row.attempt_id)
        for trial in state.trials
        if trial.result is not None and (counted := trial.counted_attempt) is not None
        for row in trial.attempts
        if row.state != "sealed" and (row.n or 0) < (counted.n or 0)
    }
    is_complete = not state.is_running and all(trial.result is not None for trial in state.trials)
    killed = {run.id for run in state.contents.runs if run.how is None} if is_complete else set()

    def is_abandoned(item: ExaminedItem) -> bool:
        if item.status is not ItemStatus.PARTIAL or not {finding.code for finding in item.findings} <= _CUT_OFF:
            return False
        return item.run_id in killed if item.kind != "attempt" else (item.run_id, item.name) in replaced

    return [
        msgspec.structs.replace(item, status=ItemStatus.ABANDONED) if is_abandoned(item) else item for item in items
    ]


def _examine_run(run: RunPaths, index: EvidenceIndex, *, is_strict: bool, is_live_now: bool) -> Iterator[ExaminedItem]:
    """Examine a run, and keep what its attempts' folders say in the index.

    `is_live_now` was asked before: what ends meanwhile is then reported as running, not as cut off.
    """
    for found in examine_run(run, is_strict=is_strict, seen=index.add):
        yield _item(found, run_id=run.folder.name, is_live_now=is_live_now)


def _item(found: Validation, *, run_id: str, is_live_now: bool) -> ExaminedItem:
    is_unfinished = is_live_now and found.status is Status.PARTIAL
    return ExaminedItem(
        kind=found.kind,
        name=found.name,
        run_id=run_id,
        status=ItemStatus(found.status),
        findings=while_running(found.findings) if is_unfinished else found.findings,
    )


def _campaign_item(
    campaign: CampaignPaths, *, state: CampaignState, listing: CampaignListing, index: EvidenceIndex
) -> ExaminedItem:
    """Examine the campaign's own folder: ledger, plan, frozen spec, report."""
    root = root_of(campaign)
    # With a ledger, the only finding is about the plan, which check_campaign reports more precisely.
    findings = [] if state.has_ledger else list(state.findings)
    findings += check_campaign(campaign, root=root, state=state, listing=listing, index=index)
    is_cut_off = all(exit_of_finding(finding) is Exit.UNVERIFIED for finding in findings)
    untried = sum(not trial.attempts for trial in state.trials)
    if untried and is_cut_off:
        how = "not tried yet" if listing.is_running else "never tried"
        findings.append(Finding(code=listing.unfinished, file="ledger.db", detail=f"{plural(untried, 'trial')} {how}"))
    validation = conclude("campaign", campaign.folder.name, findings)
    status = ItemStatus.VALID if not findings else ItemStatus.PARTIAL if is_cut_off else ItemStatus.INVALID
    return ExaminedItem(kind="campaign", name=validation.name, run_id=None, status=status, findings=validation.findings)
