"""Watches the disk of an attempt's scratch folder, and tells an agent that filled it from a disk that others filled."""

import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from proctor.contain.identity import descendants
from proctor.event.row import FailureFound

FULL_BYTES = 16 * 1024**2
"""A disk with less free space than this, in bytes, counts as full."""
FULL_FILES = 64
"""A disk on which fewer files than this can be created counts as full."""

_MIB: Final = 1024**2
_UNLIMITED: Final = sys.maxsize


class DiskSpace(NamedTuple):
    """An amount of disk space. A folder counts as a file."""

    size_bytes: int = 0
    files: int = 0

    def __str__(self) -> str:
        files = "unlimited" if self.files == _UNLIMITED else f"{self.files:,}"
        return f"{self.size_bytes // _MIB:,} MiB and {files} files"


_FULL: Final = DiskSpace(FULL_BYTES, FULL_FILES)


class ScratchDisk:
    """The disk that holds a scratch folder, since the start of an attempt."""

    def __init__(self, folder: Path, *, base: DiskSpace, owned: Callable[[], Collection[Path]]) -> None:
        """Create it before the agent starts.

        `base` is what the untouched workspace takes. `owned` returns the folders, the workspace among them, that only
        the agent of this attempt writes to.
        """
        self._folder = folder
        self._base = base
        self._owned = owned
        self._free_at_start = _free(folder)

    def find_failure(self, *, copy: DiskSpace | None = None) -> FailureFound | None:
        """Return a failure if the disk is full, or has no room for a copy of the workspace; None if it has room.

        `copy` is what that copy takes. It is the agent's failure if what it took of the bytes or files that ran out,
        and what the copy has grown by, is at least half of what was free before it started. Files that its processes
        have deleted and still hold open count as well, so the processes must not have been ended.
        """
        free, at_start, wanted = _free(self._folder), self._free_at_start, copy or DiskSpace()
        if free is None or at_start is None or not any(_lacking(free, wanted)):
            return None
        taken = _taken(self._owned())
        grown = DiskSpace(
            *(now - was + max(0, more - was) for now, was, more in zip(taken, self._base, wanted, strict=True))
        )
        had_room = not any(_lacking(at_start, self._base))
        is_agents = had_room and any(
            is_lacking and share * 2 >= before
            for is_lacking, share, before in zip(_lacking(free, wanted), grown, at_start, strict=True)
        )
        what = f"{free} are free for the scratch folder {self._folder}"
        share = f"the agent's share of the {at_start} free before it started is {grown}"
        return FailureFound(code="agent.disk" if is_agents else "machine.disk-full", detail=f"{what}; {share}")


def _lacking(free: DiskSpace, wanted: DiskSpace) -> tuple[bool, ...]:
    """Return whether bytes, and whether files, are lacking for what is wanted."""
    return tuple(left < least + more for left, least, more in zip(free, _FULL, wanted, strict=True))


def _free(folder: Path) -> DiskSpace | None:
    """Return the free bytes and the number of files that can be created; None if that is unknown."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    # The blocks that are reserved for root are free for root only.
    is_root = os.geteuid() == 0
    blocks, files = (status.f_bfree, status.f_ffree) if is_root else (status.f_bavail, status.f_favail)
    # Some file systems have no limit of files, and report 0 of 0.
    return DiskSpace(blocks * status.f_frsize, files if status.f_files else _UNLIMITED)


def _taken(folders: Collection[Path]) -> DiskSpace:
    """Return what the files in the folders take, and those that were deleted there and are still open."""
    by_inode = {(each.st_dev, each.st_ino): each.st_blocks * 512 for each in (*_files(folders), *_deleted(folders))}
    return DiskSpace(sum(by_inode.values()), len(by_inode))


def _files(folders: Iterable[Path]) -> Iterator[os.stat_result]:
    for folder in folders:
        for place, below, files in os.walk(folder, onerror=None, followlinks=False):
            for name in (*below, *files):
                try:
                    yield os.lstat(os.path.join(place, name))  # noqa: PTH118
                except OSError:
                    continue


def _deleted(folders: Iterable[Path]) -> Iterator[os.stat_result]:
    """Yield the open files without a name that processes below Proctor hold, if they were deleted in the folders."""
    # Only the folders tell the agents of a shared process apart.
    tops = tuple(f"{folder.resolve()}/" for folder in folders)
    for pid in descendants(os.getpid()):
        try:
            entries = list(os.scandir(f"/proc/{pid}/fd"))
        except OSError:
            continue
        for entry in entries:
            try:
                status = os.stat(entry.path)  # noqa: PTH116
                is_ours = status.st_nlink == 0 and stat.S_ISREG(status.st_mode)
                if is_ours and os.readlink(entry.path).startswith(tops):  # noqa: PTH115
                    yield status
            except OSError:
                continue
