"""A run's scratch in the user's cache: workspaces and agent homes, under a kernel lock while the run lives."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from proctor import places
from proctor.contain.intent import LOCK, take_lock
from proctor.errors import EvidenceError, disk_error
from proctor.evidence.disk import open_descriptor
from proctor.ids import RunId
from proctor.workspace.remove import remove

_KEPT = "kept-on-purpose"
_UNBORN = ".unborn-"


def scratch_of_runs() -> Path:
    return places.cache_dir() / "runs"


@contextmanager
def open_scratch(run_id: RunId, *, is_kept: bool) -> Iterator[Path]:
    """The run's own folder, gone afterwards unless it is to be kept."""
    runs = scratch_of_runs()
    try:
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        unborn, lock = _locked_folder(runs)
        if is_kept:
            (unborn / _KEPT).touch()
        folder = unborn.rename(runs / run_id)
    except OSError as error:
        raise disk_error(error, path=runs) from error
    try:
        yield folder
    finally:
        if not is_kept:
            # What cannot be removed now is swept later: it must not spoil a run that is over.
            with suppress(OSError):
                _remove_locked(folder)
        os.close(lock)


@contextmanager
def hold_run(run_id: RunId) -> Iterator[bool]:
    """The lock of a run that may be over and have no scratch any more; False while somebody else has it.

    OSError where the machine refuses.
    """
    folder = scratch_of_runs() / run_id
    lock, is_new = take_lock(folder), False
    if lock is None and not os.path.lexists(folder):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unborn, lock = _locked_folder(folder.parent)
        try:
            unborn.rename(folder)
            is_new = True
        except OSError:
            # Another was first.
            _remove_locked(unborn)
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
    """A new folder that is ours. A sweep may find it before its lock is taken, and then another one is made."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_UNBORN, dir=runs))
        if (lock := take_lock(folder)) is not None:
            return folder, lock


def _remove_locked(folder: Path) -> None:
    """Emptied where it stands, the lock last: whoever looks meanwhile sees a folder that is taken."""
    for inner in sorted(folder.iterdir()):
        if inner.name != LOCK:
            remove(inner)
    (folder / LOCK).unlink()
    folder.rmdir()


def _folders(runs: Path) -> list[Path]:
    """No links: what they lead to is not ours to empty."""
    inner = sorted(runs.iterdir()) if runs.is_dir() else []
    return [each for each in inner if each.is_dir() and not each.is_symlink()]


def kept_scratch(runs: Path) -> list[Path]:
    """What was kept on purpose, by the id of its run."""
    return [folder for folder in _folders(runs) if (folder / _KEPT).exists()]


def is_locked(folder: Path) -> bool:
    """Whether the owner of this folder lives. Nothing is made, and the lock is only shared for an instant."""
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
    """What `sweep` would remove."""
    return [each for each in _folders(runs) if not (each / _KEPT).exists() and not is_locked(each)]


def remove_scratch(folder: Path) -> bool:
    """Take it away, kept on purpose or not; False where its run lives. OSError where the machine refuses."""
    if (lock := take_lock(folder)) is None:
        return False
    try:
        _remove_locked(folder)
    finally:
        os.close(lock)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """Folders by the id of their run: taken away, kept for a reason, or refused by the machine."""

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def sweep(runs: Path) -> SweepResult:
    """Remove what a dead run left. A live one holds its lock, and the kernel drops it with its holder."""
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
