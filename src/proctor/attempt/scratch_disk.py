"""Watches the disk of an attempt's scratch folder, and tells an agent that filled it from a disk that others filled."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from proctor.event.row import FailureFound

FULL_BYTES = 16 * 1024**2
"""A disk with less free space than this, in bytes, counts as full."""
FULL_FILES = 64
"""A disk on which fewer files than this can be created counts as full."""

_MIB = 1024**2


class ScratchDisk:
    """The disk that holds a scratch folder, since the start of an attempt."""

    def __init__(self, folder: Path, *, base_bytes: int, owned: Callable[[], Iterable[Path]]) -> None:
        """Create it before the agent starts.

        `base_bytes` is the size of the untouched workspace. `owned` returns the folders, the workspace among them, that
        only the agent of this attempt writes to.
        """
        self._folder = folder
        self._base_bytes = base_bytes
        self._owned = owned
        self._free_at_start = _free(folder)

    def find_failure(self, *, copy_bytes: int = 0) -> FailureFound | None:
        """Return a failure if the disk is full, or has no room for a copy of the workspace; None if it has room.

        `copy_bytes` is the size of that copy. It is the agent's failure if what it wrote, and what the copy has grown
        by, is at least half of what was free before it started.
        """
        free, at_start = _free(self._folder), self._free_at_start
        if free is None or at_start is None or not _lacks(free, copy_bytes):
            return None
        grown = sum(map(_allocated, self._owned())) - self._base_bytes + max(0, copy_bytes - self._base_bytes)
        what = f"{free[0] // _MIB} MiB and {free[1]} files are free for the scratch folder {self._folder}"
        share = f"the agent's share of the {at_start[0] // _MIB} MiB free before it started is {grown // _MIB} MiB"
        is_agents = not _lacks(at_start, self._base_bytes) and grown * 2 >= at_start[0]
        return FailureFound(code="agent.disk" if is_agents else "machine.disk-full", detail=f"{what}; {share}")


def _lacks(free: tuple[int, int], wanted_bytes: int) -> bool:
    return free[0] < FULL_BYTES + wanted_bytes or free[1] < FULL_FILES


def _free(folder: Path) -> tuple[int, int] | None:
    """Return the free bytes and the number of files that can be created; None if that is unknown."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    # The blocks that are reserved for root are free for root only.
    is_root = os.geteuid() == 0
    blocks, files = (status.f_bfree, status.f_ffree) if is_root else (status.f_bavail, status.f_favail)
    # Some file systems have no limit of files, and report 0 of 0.
    return blocks * status.f_frsize, files if status.f_files else FULL_FILES


def _allocated(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder, onerror=None, followlinks=False):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118
            except OSError:
                continue
    return total
