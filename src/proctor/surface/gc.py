"""Letting go of old evidence: renamed away whole, then removed, so that no half of it ever looks whole."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from proctor.campaign.retention import Fate, Kind, Rule, Unit, decide
from proctor.campaign.scratch import dead_scratch, hold_run, remove_scratch, scratch_of_runs, sweep
from proctor.contain.intent import LOCK, take_lock
from proctor.errors import MachineError, disk_refusal
from proctor.evidence.disk import sync_folder
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import RunId
from proctor.surface.holdings import find_units, is_needed, places_of, run_ids, why_still
from proctor.workspace.remove import remove

REMOVED = ".removed"
"""Where in the evidence root things go first."""


class Kept(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that was looked at. `goes` is whether it went, or in a dry run would go."""

    kind: Kind
    name: str
    goes: bool
    why: str
    age_ms: int
    size_bytes: int
    dirs: tuple[str, ...]


class Cleared(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `gc` did, or would do. `swept` is scratch of dead runs, `finished`
    are leftovers of a gc that was killed, `refused` did not go."""

    is_dry: bool
    freed_bytes: int
    kept_bytes: int
    units: tuple[Kept, ...]
    swept: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def plan_clearing(root: RootPaths, rule: Rule, *, now_ms: int) -> Cleared:
    """What would go. Nothing is touched."""
    fates = decide(find_units(root, now_ms=now_ms), rule, now_ms=now_ms)
    swept = tuple(folder.name for folder in dead_scratch(scratch_of_runs()))
    return _told(fates, now_ms=now_ms, is_dry=True, swept=swept)


def clear(root: RootPaths, rule: Rule, *, now_ms: int) -> Cleared:
    """What the disk refuses to let go of is `refused`. MachineError where another one is at it."""
    swept = sweep(scratch_of_runs())
    refused = list(swept.refused)
    if not root.folder.is_dir():
        fates = decide(find_units(root, now_ms=now_ms), rule, now_ms=now_ms)
        done = [_done(fate, root, None, now_ms=now_ms, refused=refused) for fate in fates]
        return _told(done, now_ms=now_ms, swept=swept.removed, refused=tuple(refused))
    with hold_root(root) as bin_:
        finished = tuple(_finish(root, bin_, refused=refused))
        fates = decide(find_units(root, now_ms=now_ms), rule, now_ms=now_ms)
        done = [_done(fate, root, bin_, now_ms=now_ms, refused=refused) for fate in fates]
    return _told(done, now_ms=now_ms, swept=swept.removed, finished=finished, refused=tuple(refused))


@contextmanager
def hold_root(root: RootPaths) -> Iterator[Path]:
    """Where things go, ours alone meanwhile: nobody else lets go of anything of this root.

    MachineError while somebody does, or where the disk refuses.
    """
    bin_ = root.folder / REMOVED
    try:
        bin_.mkdir(mode=0o700, exist_ok=True)
        if bin_.is_symlink():
            # What it leads to is not ours to empty.
            raise NotADirectoryError(errno.ENOTDIR, "a symbolic link, and no folder")
        lock = take_lock(bin_)
    except OSError as error:
        raise disk_refusal(error, path=bin_) from error
    if lock is None:
        what = "another Proctor lets go of evidence here, or signs all of it"
        raise MachineError("machine.locked", what, file=str(root.folder))
    try:
        yield bin_
    finally:
        with suppress(OSError):
            (bin_ / LOCK).unlink()
            bin_.rmdir()
        os.close(lock)


def _finish(root: RootPaths, bin_: Path, *, refused: list[str]) -> Iterator[str]:
    """What one that was killed or refused had begun. A campaign goes last, because it alone knows its runs."""
    left = [each for each in sorted(bin_.iterdir()) if each.name != LOCK]
    cited = {id_ for campaign in root.campaigns() for id_ in run_ids(root, campaign)}
    for each in sorted(left, key=lambda folder: (folder / "ledger.db").exists()):
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
    """The run of a campaign that is gone. One that is signed by now, or about to be, is a run of none from then on."""
    with hold_run(RunId(run.name)) as is_ours:
        if is_ours and run.is_dir() and not is_needed(run, root):
            _empty([_move(run, bin_)])


def _done(fate: Fate, root: RootPaths, bin_: Path | None, *, now_ms: int, refused: list[str]) -> Fate:
    """With what really became of it."""
    if not fate.goes:
        return fate
    unit = fate.unit
    try:
        if unit.kind == "scratch":
            why = None if remove_scratch(places_of(unit)[0]) else "running"
        else:
            why = "its evidence root is gone" if bin_ is None else _remove(unit, root, bin_, now_ms=now_ms)
    except OSError as error:
        # The others may go all the same, and what went is told.
        refused.append(unit.name)
        why = error.strerror or str(error)
    return fate if why is None else Fate(unit=unit, goes=False, why=why)


def _remove(unit: Unit, root: RootPaths, bin_: Path, *, now_ms: int) -> str | None:
    """Under its lock: whoever would run or sign it now finds it taken, and then gone. Why it stays, where it does."""
    with _lock_of(unit) as is_ours:
        if not is_ours:
            return "running"
        if (why := why_still(unit, root, now_ms=now_ms)) is None:
            gone = [_move(folder, bin_) for folder in places_of(unit)]
            _empty(reversed(gone))
        return why


@contextmanager
def _lock_of(unit: Unit) -> Iterator[bool]:
    """Whether nobody else has it. A run's lock lies in its scratch."""
    if unit.kind != "campaign":
        with hold_run(RunId(unit.name)) as is_ours:
            yield is_ours
        return
    place = places_of(unit)[0]
    lock = take_lock(place)
    try:
        yield lock is not None or not place.is_dir()
    finally:
        if lock is not None:
            os.close(lock)


def _move(folder: Path, bin_: Path) -> Path:
    """Durable, because what is half removed must not come back after a power cut."""
    moved = folder.rename(bin_ / f"{folder.parent.name}-{folder.name}")
    sync_folder(folder.parent)
    sync_folder(bin_)
    return moved


def _empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        remove(folder)


def _told(
    fates: Iterable[Fate],
    *,
    now_ms: int,
    is_dry: bool = False,
    swept: tuple[str, ...] = (),
    finished: tuple[str, ...] = (),
    refused: tuple[str, ...] = (),
) -> Cleared:
    units = tuple(
        Kept(
            kind=fate.unit.kind,
            name=fate.unit.name,
            goes=fate.goes,
            why=fate.why,
            age_ms=max(0, now_ms - fate.unit.touched_at_ms),
            size_bytes=fate.unit.size_bytes,
            dirs=fate.unit.folders,
        )
        for fate in fates
    )
    return Cleared(
        is_dry=is_dry,
        freed_bytes=sum(unit.size_bytes for unit in units if unit.goes),
        kept_bytes=sum(unit.size_bytes for unit in units if not unit.goes),
        units=units,
        swept=swept,
        finished=finished,
        refused=refused,
    )
