"""The lock of a campaign. The process that runs the campaign holds it, and writes its identity into it."""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from proctor.contain.identity import ProcessIdentity, identify, is_alive
from proctor.contain.intent import LOCK, take_lock
from proctor.errors import EvidenceError, MachineError, disk_error
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.reader import read_artifact

UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
_LOOKS = 20
_LOOK_S = 0.01


@contextmanager
def campaign_lock(paths: CampaignPaths) -> Iterator[None]:
    """Hold the lock of a campaign. The kernel releases it when its owner dies.

    Raises MachineError if a live process holds it, or if the disk refuses.
    """
    try:
        lock = _take_lock(paths)
    except OSError as error:
        raise disk_error(error, path=paths.folder / LOCK) from error
    if lock is None:
        name = paths.folder.name
        todo = f"`proctor campaign status {name}` shows its progress, `proctor campaign cancel {name}` stops it."
        raise MachineError("machine.locked", f"{name} is being run by another Proctor", suggestion=todo)
    try:
        # For `campaign cancel`. The lock works without it.
        with suppress(OSError):
            os.ftruncate(lock, 0)
            os.write(lock, msgspec.json.encode(identify(os.getpid())))
        yield
    finally:
        with suppress(OSError):
            os.ftruncate(lock, 0)
        os.close(lock)


@contextmanager
def still_campaign(paths: CampaignPaths) -> Iterator[None]:
    """Keep a campaign from being run or deleted. Many may hold this lock at once; none counts as the owner.

    Raises MachineError if it is being run or deleted, or if the disk refuses; EvidenceError if it no longer exists.
    """
    try:
        lock = take_lock(paths.folder, is_shared=True)
    except OSError as error:
        if error.errno in UNWRITABLE:
            # A read-only campaign can be neither run nor deleted.
            yield
            return
        raise disk_error(error, path=paths.folder / LOCK) from error
    if lock is None:
        if not paths.folder.is_dir():
            raise EvidenceError("evidence.missing-file", "absent", file=paths.folder.name)
        raise MachineError("machine.locked", f"{paths.folder.name} is being run or deleted by another Proctor")
    try:
        yield
    finally:
        os.close(lock)


def _take_lock(paths: CampaignPaths) -> int | None:
    """Take the lock; None if a live owner has it.

    A process that only checks the lock holds it for an instant. The identity in the file tells it from an owner.
    """
    lock = take_lock(paths.folder)
    for _ in range(_LOOKS):
        owner = owner_of(paths)
        if lock is not None or (owner is not None and is_alive(owner)):
            break
        time.sleep(_LOOK_S)
        lock = take_lock(paths.folder)
    return lock


def is_held_by(paths: CampaignPaths, owner: ProcessIdentity) -> bool:
    """Whether the kernel confirms that this process holds the lock: any process may write the file.

    False if that cannot be determined.
    """
    try:
        lock = (paths.folder / LOCK).lstat()
        return any(_is_hold(descriptor, lock) for descriptor in Path(f"/proc/{owner.pid}/fd").iterdir())
    except OSError:
        return False


def _is_hold(descriptor: Path, lock: os.stat_result) -> bool:
    """Whether this open file of a process is the lock file, and locked: proc_pid_fdinfo(5)."""
    try:
        if not os.path.samestat(descriptor.stat(), lock):
            return False
        fdinfo = descriptor.parent.with_name("fdinfo") / descriptor.name
        return any(line.split()[2:5] == ["FLOCK", "ADVISORY", "WRITE"] for line in fdinfo.read_text().splitlines())
    except OSError:
        # Closed meanwhile.
        return False


def owner_of(paths: CampaignPaths) -> ProcessIdentity | None:
    """Return the process that took the lock last, dead or alive; None if the file does not name one."""
    try:
        return read_artifact(paths.folder / LOCK, ProcessIdentity)
    except EvidenceError:
        return None
