"""What is about to be spawned and what was: written before the process exists, so that a successor can clean up."""

import errno
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from proctor import canonical
from proctor.contain.identity import Identity, boot_id
from proctor.errors import MachineError

LOCK = "lock"
_UNBORN = ".unborn-"


class Intent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """One spawn. The identities are unknown until it happened."""

    marker: str
    argv: tuple[str, ...]
    boot_id: str
    cgroup: str | None = None
    wrapper: Identity | None = None
    agent: Identity | None = None

    @property
    def identities(self) -> tuple[Identity, ...]:
        return tuple(each for each in (self.wrapper, self.agent) if each is not None)


class IntentBook:
    """The spawns of one live Proctor, in a folder of its own that only `open_intents` makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def declare(self, marker: str, *, argv: Sequence[str], cgroup: Path | None = None) -> Intent:
        """Call it before the spawn: it outlives us, though not a power cut, which leaves nobody to look for."""
        # An argv may hold bytes that are no text; what is kept of it is for people.
        legible = tuple(os.fsencode(word).decode(errors="replace") for word in argv)
        intent = Intent(marker=marker, argv=legible, boot_id=boot_id(), cgroup=None if cgroup is None else str(cgroup))
        try:
            _write(self._path(marker), intent, flags=os.O_CREAT | os.O_EXCL)
        except OSError as error:
            if not isinstance(error, FileExistsError):
                self.settle(marker)
            raise _disk_error(error, self.folder) from error
        return intent

    def identify(self, intent: Intent, *, wrapper: Identity, agent: Identity | None) -> None:
        """Add who it became."""
        try:
            _write(self._path(intent.marker), msgspec.structs.replace(intent, wrapper=wrapper, agent=agent))
        except OSError as error:
            raise _disk_error(error, self.folder) from error

    def settle(self, marker: str) -> None:
        """That process is known to be gone. An intent that cannot be removed is left to be reaped, and finds nobody."""
        with suppress(OSError):
            self._path(marker).unlink()

    def _path(self, marker: str) -> Path:
        return self.folder / f"{marker}.json"


@asynccontextmanager
async def open_intents(spawns: Path) -> AsyncIterator[IntentBook]:
    """A book of our own under `spawns`, locked while we live. What is unsettled at the end is left to be reaped."""
    folder, lock = _make_owner(spawns)
    try:
        yield IntentBook(folder)
    finally:
        if not any(folder.glob("*.json")):
            remove_owner(folder)
        os.close(lock)


def owner_folders(spawns: Path) -> list[Path]:
    """Owners dead or alive. A folder without a lock is none of ours, and neither is one that a link leads to. OSError
    where nobody may look: that is not the same as none.
    """
    try:
        with os.scandir(spawns) as found:
            folders = sorted(Path(each.path) for each in found if each.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    return [each for each in folders if not each.name.startswith(_UNBORN) and _has_lock(each)]


def _has_lock(folder: Path) -> bool:
    try:
        (folder / LOCK).lstat()
    except FileNotFoundError:
        return False
    return True


def remove_owner(folder: Path) -> None:
    """For the holder of its lock, when nothing of it is alive."""
    with suppress(OSError):
        for path in (*folder.glob("*.json"), folder / LOCK):
            path.unlink(missing_ok=True)
        folder.rmdir()


def read_intents(folder: Path) -> list[Intent]:
    """All of them, in the order of their markers. Of a torn one the marker is known: it is the file's name."""
    intents: list[Intent] = []
    for path in sorted(folder.glob("*.json")):
        try:
            intents.append(msgspec.json.decode(path.read_bytes(), type=Intent))
        except msgspec.MsgspecError:
            intents.append(Intent(marker=path.stem, argv=(), boot_id=""))
    return intents


def take_lock(folder: Path, *, is_shared: bool = False) -> int | None:
    """The lock of an owner's folder, held until the descriptor is closed; none while its owner lives.

    Shared it is for whoever owns nothing and only needs that nobody does. OSError where the machine refuses, or what
    has the lock's name is no file.
    """
    try:
        # os.open gives what no child inherits, and the kernel drops the lock with its holder: the dead block nobody.
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(lock).st_mode):
        os.close(lock)
        raise OSError(errno.EINVAL, "the lock is not a regular file")
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        # The last owner may have taken the whole folder away meanwhile: then this is the lock of nothing.
        if os.path.samestat(os.fstat(lock), (folder / LOCK).lstat()):
            return lock
    except (BlockingIOError, FileNotFoundError, NotADirectoryError):
        pass
    os.close(lock)
    return None


def _make_owner(spawns: Path) -> tuple[Path, int]:
    try:
        spawns.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Born under a name that is not reaped and renamed when locked: no reaper ever sees it unlocked.
        unborn = Path(tempfile.mkdtemp(prefix=_UNBORN, dir=spawns))
        lock = take_lock(unborn)
        assert lock is not None, "nobody else knows the folder"
        return unborn.rename(spawns / f"{os.getpid()}-{secrets.token_hex(4)}"), lock
    except OSError as error:
        raise _disk_error(error, spawns) from error


def _write(path: Path, intent: Intent, *, flags: int = 0) -> None:
    data = canonical.encode(intent)
    file = os.open(path, os.O_WRONLY | flags, 0o600)
    try:
        if os.write(file, data) != len(data):
            # A full disk takes a part before it refuses.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(file)


def _disk_error(error: OSError, folder: Path) -> MachineError:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    code = "machine.disk-full" if is_full else "machine.unwritable"
    return MachineError(code, f"spawn intents cannot be kept: {error.strerror}", file=str(folder))
