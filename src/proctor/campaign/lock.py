"""The lock of a campaign. The process that runs the campaign holds it, and writes its identity into it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proctor.contain.identity import ProcessIdentity
from proctor.contain.intent import LOCK, take_lock
from proctor.errors import EvidenceError, MachineError, disk_error
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.owner_lock import hold_folder

UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def campaign_lock(paths: CampaignPaths) -> Iterator[None]:
    """Hold the lock of a campaign. The kernel releases it when its owner dies.

    Raises MachineError if a live process holds it, or if the disk refuses.
    """
    name = paths.folder.name
    todo = f"`proctor campaign status {name}` shows its progress, `proctor campaign cancel {name}` stops it."
    held = MachineError("machine.locked", f"{name} is being run by another Proctor", suggestion=todo)
    with hold_folder(paths.folder, refusal=lambda _: held):
        yield


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
