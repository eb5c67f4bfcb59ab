"""One sync of a whole file system instead of one per file."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from proctor.errors import disk_error

# Since Linux 5.8, syncfs reports write errors.
_REPORTS_ERRORS_SINCE = (5, 8)

GATHER_S = 0.01
"""How long a sync or commit waits for others to join it, in seconds: one sync per request would cost more."""

Sync = Callable[[], None]
"""Returns when everything written before the call survives a power cut. Raises MachineError if a write failed."""


@contextmanager
def open_sync(folder: Path) -> Iterator[Sync | None]:
    """Yield a sync of the folder's file system; None if the kernel has no such call or does not report its errors.

    Raises MachineError if the folder cannot be opened.
    """
    if not _reports_errors():
        yield None
        return
    try:
        # Kept open, because the kernel reports only errors since a descriptor was opened.
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise disk_error(error, path=folder) from error
    syncfs = ctypes.CDLL(None, use_errno=True).syncfs

    def sync() -> None:
        if syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise disk_error(OSError(number, os.strerror(number)), path=folder)

    try:
        yield sync
    finally:
        os.close(fd)


def _reports_errors() -> bool:
    if sys.platform != "linux":
        return False
    numbers = os.uname().release.replace("-", ".").split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit()) >= _REPORTS_ERRORS_SINCE
