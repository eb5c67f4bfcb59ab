"""The lock of a folder with one owner: the process that holds it writes its identity into it."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from proctor.contain.identity import ProcessIdentity, identify, is_alive
from proctor.contain.intent import LOCK, take_lock
from proctor.errors import EvidenceError, ProctorError, disk_error
from proctor.evidence.reader import read_artifact

_LOOKS = 20
_LOOK_S = 0.01


@contextmanager
def hold_folder(folder: Path, *, refusal: Callable[[ProcessIdentity | None], ProctorError]) -> Iterator[None]:
    """Hold the lock of a folder. The kernel releases it when its owner dies.

    Raises what `refusal` returns if another process holds it, and MachineError if the disk refuses.
    """
    try:
        lock = _take(folder)
    except OSError as error:
        raise disk_error(error, path=folder / LOCK) from error
    if lock is None:
        raise refusal(owner_of(folder))
    try:
        # For other processes to name the owner. The lock works without it.
        with suppress(OSError):
            os.ftruncate(lock, 0)
            os.write(lock, msgspec.json.encode(identify(os.getpid())))
        yield
    finally:
        with suppress(OSError):
            os.ftruncate(lock, 0)
        os.close(lock)


def _take(folder: Path) -> int | None:
    """Take the lock; None if a live owner has it.

    A process that only checks the lock holds it for an instant. The identity in the file tells it from an owner.
    """
    lock = take_lock(folder)
    for _ in range(_LOOKS):
        owner = owner_of(folder)
        if lock is not None or (owner is not None and is_alive(owner)):
            break
        time.sleep(_LOOK_S)
        lock = take_lock(folder)
    return lock


def owner_of(folder: Path) -> ProcessIdentity | None:
    """Return the process that took the lock last, dead or alive; None if the file does not name one."""
    try:
        return read_artifact(folder / LOCK, ProcessIdentity)
    except EvidenceError:
        return None
