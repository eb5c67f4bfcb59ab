"""The lock of a campaign: held by the one who runs it, and telling who that is."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from proctor.contain.identity import Identity, identify
from proctor.contain.intent import LOCK, take_lock
from proctor.errors import MachineError
from proctor.evidence.layout import CampaignPaths


@contextmanager
def campaign_lock(paths: CampaignPaths) -> Iterator[None]:
    """A kernel lock: it dies with its owner, so a dead owner blocks nobody. MachineError while one lives."""
    lock = take_lock(paths.folder)
    if lock is None:
        raise MachineError("machine.locked", f"{paths.folder.name} is being run by another Proctor")
    try:
        # For `campaign cancel`. The lock holds without it.
        with suppress(OSError):
            os.ftruncate(lock, 0)
            os.write(lock, msgspec.json.encode(identify(os.getpid())))
        yield
    finally:
        os.close(lock)


def owner_of(paths: CampaignPaths) -> Identity | None:
    """Who took it last, dead or alive; None where it does not say."""
    try:
        return msgspec.json.decode((paths.folder / LOCK).read_bytes(), type=Identity)
    except (OSError, msgspec.MsgspecError):
        return None
