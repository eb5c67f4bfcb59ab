"""The lock of a campaign: held by the one who runs it, and telling who that is."""

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
    """A kernel lock: it dies with its owner, so a dead owner blocks nobody.

    MachineError while one lives, or where the disk refuses.
    """
    try:
        lock = _taken(paths)
    except OSError as error:
        raise disk_error(error, path=paths.folder / LOCK) from error
    if lock is None:
        name = paths.folder.name
        todo = f"`proctor campaign status {name}` shows how far it is, `proctor campaign cancel {name}` stops it."
        raise MachineError("machine.locked", f"{name} is being run by another Proctor", suggestion=todo)
    try:
        # For `campaign cancel`. The lock holds without it.
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
    """Nobody runs it or takes it away meanwhile. Any number may hold it so, and none of them is taken for its owner.

    MachineError while somebody does, or where the disk refuses; EvidenceError where it is gone.
    """
    try:
        lock = take_lock(paths.folder, is_shared=True)
    except OSError as error:
        if error.errno in UNWRITABLE:
            # Then nobody can run it or take it away.
            yield
            return
        raise disk_error(error, path=paths.folder / LOCK) from error
    if lock is None:
        if not paths.folder.is_dir():
            raise EvidenceError("evidence.missing-file", "absent", file=paths.folder.name)
        raise MachineError("machine.locked", f"{paths.folder.name} is being run, or let go of, by another Proctor")
    try:
        yield
    finally:
        os.close(lock)


def _taken(paths: CampaignPaths) -> int | None:
    """Whoever only looks whether it is held holds it for an instant, and is told from an owner by who wrote it last."""
    lock = take_lock(paths.folder)
    for _ in range(_LOOKS):
        owner = owner_of(paths)
        if lock is not None or (owner is not None and is_alive(owner)):
            break
        time.sleep(_LOOK_S)
        lock = take_lock(paths.folder)
    return lock


def is_held_by(paths: CampaignPaths, owner: ProcessIdentity) -> bool:
    """Whether the kernel says so too: anybody may write a name into a file. False where it cannot be told."""
    try:
        lock = (paths.folder / LOCK).lstat()
        return any(_is_hold(descriptor, lock) for descriptor in Path(f"/proc/{owner.pid}/fd").iterdir())
    except OSError:
        return False


def _is_hold(descriptor: Path, lock: os.stat_result) -> bool:
    """Whether this open file of a process is the lock's, and locked: proc_pid_fdinfo(5)."""
    try:
        if not os.path.samestat(descriptor.stat(), lock):
            return False
        fdinfo = descriptor.parent.with_name("fdinfo") / descriptor.name
        return any(line.split()[2:5] == ["FLOCK", "ADVISORY", "WRITE"] for line in fdinfo.read_text().splitlines())
    except OSError:
        # Closed meanwhile.
        return False


def owner_of(paths: CampaignPaths) -> ProcessIdentity | None:
    """Who took it last, dead or alive; None where it does not say."""
    try:
        return read_artifact(paths.folder / LOCK, ProcessIdentity)
    except EvidenceError:
        return None
