"""The scratch of a run in the user's cache folder: workspaces and agent homes, locked while the run is alive."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from proctor import places
from proctor.contain.intent import LOCK, take_lock
from proctor.errors import EvidenceError, disk_error
from proctor.evidence.disk import open_descriptor
from proctor.ids import AttemptId, RunId
from proctor.workspace.remove import remove

_KEPT = "kept-on-purpose"
_INCOMPLETE = ".unborn-"
_WORKSPACES = "workspaces"
"""The folder with what `keep` keeps of a run. It is outside the folder that agents see."""


def scratch_of_runs() -> Path:
    return places.cache_dir() / "runs"


def kept_workspace(scratch: Path, attempt: AttemptId) -> Path:
    """Return where `keep` keeps the workspace of an attempt, in the scratch folder of its run."""
    return scratch / _WORKSPACES / attempt


def find_kept_workspaces(run_id: RunId, attempt: AttemptId) -> list[Path]:
    """Return the folders of an ended run that may hold the workspace which the agent left."""
    scratch = scratch_of_runs() / run_id
    places = (kept_workspace(scratch, attempt), scratch / "attempts" / attempt / "workspace")
    return [place for place in places if place.is_dir() and not place.is_symlink()]


@contextmanager
def open_scratch(run_id: RunId, *, is_kept: bool) -> Iterator[Path]:
    """Create the scratch folder of a run, and remove it afterwards unless `is_kept`.

    Workspaces that an attempt moved to `kept_workspace` stay. `gc` deletes them as it does other scratch.
    """
    runs = scratch_of_runs()
    try:
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        incomplete, lock = _locked_folder(runs)
        if is_kept:
            (incomplete / _KEPT).touch()
        folder = incomplete.rename(runs / run_id)
    except OSError as error:
        raise disk_error(error, path=runs) from error
    try:
        yield folder
    finally:
        if not is_kept:
            # A folder that cannot be removed now is swept later; it must not fail a run that is over.
            with suppress(OSError):
                if (folder / _WORKSPACES).is_dir():
                    (folder / _KEPT).touch()
                    _empty(folder, keep=(LOCK, _KEPT, _WORKSPACES))
                else:
                    _remove_locked(folder)
        os.close(lock)


@contextmanager
def hold_run(run_id: RunId) -> Iterator[bool]:
    """Hold the lock of a run, even if it is over and has no scratch any more. Yields False if it is held elsewhere.

    Raises OSError if the machine refuses.
    """
    folder = scratch_of_runs() / run_id
    lock, is_new = take_lock(folder), False
    if lock is None and not os.path.lexists(folder):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        incomplete, lock = _locked_folder(folder.parent)
        try:
            incomplete.rename(folder)
            is_new = True
        except OSError:
            # Another process was first.
            _remove_locked(incomplete)
            os.close(lock)
            lock = None
    if lock is None:
        yield False
        return
    try:
        yield True
    finally:
        if is_new:
            with suppress(OSError):
                _remove_locked(folder)
        os.close(lock)


def _locked_folder(runs: Path) -> tuple[Path, int]:
    """Create a folder and lock it. If a sweep finds it before it is locked, try again with another one."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_INCOMPLETE, dir=runs))
        if (lock := take_lock(folder)) is not None:
            return folder, lock


def _remove_locked(folder: Path) -> None:
    """Empty the folder in place and remove the lock last, so that other processes see it as locked meanwhile."""
    _empty(folder, keep=(LOCK,))
    (folder / LOCK).unlink()
    folder.rmdir()


def _empty(folder: Path, *, keep: Sequence[str]) -> None:
    for inner in sorted(folder.iterdir()):
        if inner.name not in keep:
            remove(inner)


def _folders(runs: Path) -> list[Path]:
    """Return the folders below `runs`. Links are left out, because their targets must not be emptied."""
    inner = sorted(runs.iterdir()) if runs.is_dir() else []
    return [each for each in inner if each.is_dir() and not each.is_symlink()]


def kept_scratch(runs: Path) -> list[Path]:
    """Return the folders that were kept on purpose. Each is named after its run."""
    return [folder for folder in _folders(runs) if (folder / _KEPT).exists()]


def is_locked(folder: Path) -> bool:
    """Whether the owner of this folder is alive. Creates nothing, and holds a shared lock only for an instant."""
    try:
        lock = open_descriptor(folder / LOCK)
    except EvidenceError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def dead_scratch(runs: Path) -> list[Path]:
    """Return the folders that `sweep` would remove."""
    return [each for each in _folders(runs) if not (each / _KEPT).exists() and not is_locked(each)]


def remove_scratch(folder: Path) -> bool:
    """Remove the scratch of a run, kept on purpose or not. Return False if the run is alive.

    Raises OSError if the machine refuses.
    """
    if (lock := take_lock(folder)) is None:
        return False
    try:
        _remove_locked(folder)
    finally:
        os.close(lock)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """The scratch folders of a sweep, by the id of their run."""

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Kept on purpose."""
    busy: tuple[str, ...] = ()
    """Their run is alive."""
    refused: tuple[str, ...] = ()
    """The machine refused to remove them."""


def sweep(runs: Path) -> SweepResult:
    """Remove the scratch of dead runs. A live run holds its lock, which the kernel releases when the process ends."""
    removed, kept, busy, refused = [], [], [], []
    for folder in _folders(runs):
        if (folder / _KEPT).exists():
            kept.append(folder.name)
            continue
        try:
            if remove_scratch(folder):
                removed.append(folder.name)
            else:
                busy.append(folder.name)
        except OSError:
            refused.append(folder.name)
    return SweepResult(removed=tuple(removed), kept=tuple(kept), busy=tuple(busy), refused=tuple(refused))
