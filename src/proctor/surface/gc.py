"""Delete old evidence: folders are renamed into a bin first, so that a half-deleted one never looks complete."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from proctor.campaign.kept_trials import KeptTrials
from proctor.campaign.retention import GcUnit, Kind, RetentionDecision, RetentionRule, decide
from proctor.campaign.scratch import dead_scratch, hold_run, remove_scratch, scratch_of_runs, sweep
from proctor.contain.intent import LOCK, take_lock
from proctor.errors import MachineError, disk_error
from proctor.evidence.disk import sync_folder
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import CampaignId, RunId
from proctor.surface.gc_units import find_units, is_needed, places_of, run_ids, why_still
from proctor.workspace.remove import remove

REMOVED = ".removed"
"""The bin: the folder of the evidence root into which folders are moved before they are deleted."""


class GcItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A campaign, run or scratch folder, and whether it is deleted."""

    kind: Kind
    """What it is. `run` is a run of no campaign, `scratch` the kept scratch folder of a run."""
    name: str
    """Name of its folder."""
    is_deleted: bool
    """Whether it was deleted, or would be in a dry run."""
    why: str
    """Why it was deleted or kept."""
    age_ms: int
    """Time since it was last written, in milliseconds."""
    size_bytes: int
    """Disk space that it takes, in bytes."""
    dirs: tuple[str, ...]
    """Paths of its folders. Of a campaign, its own folder is first and those of its runs follow."""


class GcResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `proctor gc` deleted, or would delete."""

    is_dry: bool
    """Whether it was a dry run, which deletes nothing."""
    freed_bytes: int
    """Total size of the deleted units, in bytes."""
    kept_bytes: int
    """Total size of the other units, in bytes."""
    units: tuple[GcItem, ...]
    """Everything that was considered, the oldest first."""
    swept: tuple[str, ...] = ()
    """Names of scratch folders of dead runs that were deleted, or would be."""
    finished: tuple[str, ...] = ()
    """Names of folders left in the bin by an interrupted gc, and deleted now."""
    refused: tuple[str, ...] = ()
    """Names of folders that could not be deleted because of a file system error."""


def plan_clearing(root: RootPaths, rule: RetentionRule, *, now_ms: int) -> GcResult:
    """Return what `clear` would delete. Nothing is touched."""
    decisions = decide(find_units(root, now_ms=now_ms), rule, now_ms=now_ms)
    swept = tuple(folder.name for folder in dead_scratch(scratch_of_runs()))
    return _result(decisions, now_ms=now_ms, is_dry=True, swept=swept)


def clear(root: RootPaths, rule: RetentionRule, *, now_ms: int) -> GcResult:
    """Delete what the rule selects. A folder that the file system refuses to delete is listed in `refused`.

    Raises MachineError if another process holds the evidence root's lock.
    """
    swept = sweep(scratch_of_runs())
    refused = list(swept.refused)
    if not root.folder.is_dir():
        decisions = decide(find_units(root, now_ms=now_ms), rule, now_ms=now_ms)
        outcomes = [_carry_out(each, root, None, now_ms=now_ms, refused=refused) for each in decisions]
        return _result(outcomes, now_ms=now_ms, swept=swept.removed, refused=tuple(refused))
    with hold_root(root) as bin_:
        finished = tuple(_finish(root, bin_, refused=refused))
        decisions = decide(find_units(root, now_ms=now_ms), rule, now_ms=now_ms)
        outcomes = [_carry_out(each, root, bin_, now_ms=now_ms, refused=refused) for each in decisions]
    return _result(outcomes, now_ms=now_ms, swept=swept.removed, finished=finished, refused=tuple(refused))


@contextmanager
def hold_root(root: RootPaths) -> Iterator[Path]:
    """Lock an evidence root against deletion by other processes, and yield its bin.

    Raises MachineError if another process holds the lock, or if the file system refuses.
    """
    bin_ = root.folder / REMOVED
    try:
        bin_.mkdir(mode=0o700, exist_ok=True)
        if bin_.is_symlink():
            # The folder behind a link does not belong to Proctor, so it must not be emptied.
            raise NotADirectoryError(errno.ENOTDIR, "is a symbolic link, not a folder")
        lock = take_lock(bin_)
    except OSError as error:
        raise disk_error(error, path=bin_) from error
    if lock is None:
        what = "another Proctor is deleting or signing evidence in this root"
        raise MachineError("machine.locked", what, file=str(root.folder))
    try:
        yield bin_
    finally:
        with suppress(OSError):
            (bin_ / LOCK).unlink()
            bin_.rmdir()
        os.close(lock)


def _finish(root: RootPaths, bin_: Path, *, refused: list[str]) -> Iterator[str]:
    """Delete what an interrupted gc left in the bin, and yield the names.

    Campaigns are deleted last, because only their ledgers know which runs belong to them.
    """
    leftovers = [each for each in sorted(bin_.iterdir()) if each.name != LOCK]
    cited = {id_ for campaign in root.campaigns() for id_ in run_ids(root, campaign)}
    for each in sorted(leftovers, key=lambda folder: (folder / "ledger.db").exists()):
        try:
            ids = run_ids(root, CampaignPaths(each)) if (each / "ledger.db").exists() else ()
            for id_ in ids:
                if id_ not in cited:
                    _remove_orphan(root.folder / "runs" / id_, root, bin_)
            _empty([each])
            yield each.name
        except OSError:
            refused.append(each.name)


def _remove_orphan(run: Path, root: RootPaths, bin_: Path) -> None:
    """Delete a run whose campaign is deleted, unless it is in use, signed or named by a statement."""
    with hold_run(RunId(run.name)) as has_lock:
        if has_lock and run.is_dir() and not is_needed(run, root):
            _empty([_move(run, bin_)])


def _carry_out(
    decision: RetentionDecision, root: RootPaths, bin_: Path | None, *, now_ms: int, refused: list[str]
) -> RetentionDecision:
    """Delete the unit if that is the decision, and return what happened."""
    if not decision.is_deleted:
        return decision
    unit = decision.unit
    try:
        if unit.kind == "scratch":
            why = None if remove_scratch(places_of(unit)[0]) else "running"
        else:
            why = "its evidence root does not exist" if bin_ is None else _remove(unit, root, bin_, now_ms=now_ms)
    except OSError as error:
        # The other units are still deleted, and the result lists what was.
        refused.append(unit.name)
        why = error.strerror or str(error)
    return decision if why is None else RetentionDecision(unit=unit, is_deleted=False, why=why)


def _remove(unit: GcUnit, root: RootPaths, bin_: Path, *, now_ms: int) -> str | None:
    """Delete a unit under its lock, so that no process can start to run or sign it. Return why it is kept, or None."""
    with _lock_of(unit) as has_lock:
        if not has_lock:
            return "running"
        if (why := why_still(unit, root, now_ms=now_ms)) is None:
            if unit.kind == "campaign":
                # First: without the campaign, it would not be known any more whose trials they are.
                KeptTrials.of(root, CampaignId(unit.name)).remove()
            moved = [_move(folder, bin_) for folder in places_of(unit)]
            _empty(reversed(moved))
        return why


@contextmanager
def _lock_of(unit: GcUnit) -> Iterator[bool]:
    """Take the lock of a unit, and yield whether no other process holds it. A run's lock is in its scratch folder."""
    if unit.kind != "campaign":
        with hold_run(RunId(unit.name)) as has_lock:
            yield has_lock
        return
    place = places_of(unit)[0]
    lock = take_lock(place)
    try:
        yield lock is not None or not place.is_dir()
    finally:
        if lock is not None:
            os.close(lock)


def _move(folder: Path, bin_: Path) -> Path:
    """Move a folder into the bin, durably: a half-deleted folder must not reappear after a power failure."""
    moved = folder.rename(bin_ / f"{folder.parent.name}-{folder.name}")
    sync_folder(folder.parent)
    sync_folder(bin_)
    return moved


def _empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        remove(folder)


def _result(
    decisions: Iterable[RetentionDecision],
    *,
    now_ms: int,
    is_dry: bool = False,
    swept: tuple[str, ...] = (),
    finished: tuple[str, ...] = (),
    refused: tuple[str, ...] = (),
) -> GcResult:
    units = tuple(
        GcItem(
            kind=each.unit.kind,
            name=each.unit.name,
            is_deleted=each.is_deleted,
            why=each.why,
            age_ms=max(0, now_ms - each.unit.touched_at_ms),
            size_bytes=each.unit.size_bytes,
            dirs=each.unit.folders,
        )
        for each in decisions
    )
    return GcResult(
        is_dry=is_dry,
        freed_bytes=sum(unit.size_bytes for unit in units if unit.is_deleted),
        kept_bytes=sum(unit.size_bytes for unit in units if not unit.is_deleted),
        units=units,
        swept=swept,
        finished=finished,
        refused=refused,
    )
