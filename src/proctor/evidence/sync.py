"""One sync of the disk for everything that was written to it, in place of one for each file."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from proctor.errors import disk_refusal

_TELLS_ERRORS_SINCE = (5, 8)

Sync = Callable[[], None]
"""Returns when all that was written before the call survives a power cut; MachineError where the disk refused some."""


@contextmanager
def open_sync(folder: Path) -> Iterator[Sync | None]:
    """For the file system that the folder is on; None where the kernel has no such call, or hides what went wrong."""
    if not _is_trustworthy():
        yield None
        return
    try:
        # Held open: the kernel tells of what failed since a descriptor was opened.
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise disk_refusal(error, path=folder) from error
    syncfs = ctypes.CDLL(None, use_errno=True).syncfs

    def sync() -> None:
        if syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise disk_refusal(OSError(number, os.strerror(number)), path=folder)

    try:
        yield sync
    finally:
        os.close(fd)


def _is_trustworthy() -> bool:
    if sys.platform != "linux":
        return False
    numbers = os.uname().release.replace("-", ".").split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit()) >= _TELLS_ERRORS_SINCE
