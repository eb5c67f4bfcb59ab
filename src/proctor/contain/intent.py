"""Spawn intents: files written before each process is started, so that a later Proctor can kill what is left over."""

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

from proctor import canonical, decoding
from proctor.contain.identity import ProcessIdentity, boot_id
from proctor.errors import MachineError

LOCK = "lock"
CONTROL_SUFFIX = ".sock"
"""The end of the name of a control socket, which a running campaign has beside its intents."""
_INCOMPLETE = ".unborn-"


class Intent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """One spawn, in a file named after its marker."""

    marker: str
    """The value of PROCTOR_SPAWN in the environment of the spawned processes. Unique to this spawn."""
    argv: tuple[str, ...]
    """The command line inside the containment, for display. Bytes that are not UTF-8 are replaced."""
    boot_id: str
    """The kernel's boot id at the time of the spawn; empty if the file could not be decoded."""
    cgroup: str | None = None
    """The path of the cgroup that contains the processes; None if containment does not use one."""
    wrapper: ProcessIdentity | None = None
    """The process that Proctor started, usually a containment program; None until it has been started."""
    agent: ProcessIdentity | None = None
    """The process that runs `argv`; None until it has been seen."""

    @property
    def identities(self) -> tuple[ProcessIdentity, ...]:
        return tuple(each for each in (self.wrapper, self.agent) if each is not None)


class IntentLog:
    """The spawn intents of one live Proctor process, in its own folder. Made by `open_intents` only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def declare(self, marker: str, *, argv: Sequence[str], cgroup: Path | None = None) -> Intent:
        """Write the intent of a spawn. Must be called before the spawn.

        The file survives a crash of Proctor. It need not survive a power failure, after which no process is left.
        Raises MachineError if the file cannot be written.
        """
        # An argv may contain bytes that are not UTF-8. The stored one is only for display.
        legible = tuple(os.fsencode(word).decode(errors="replace") for word in argv)
        intent = Intent(marker=marker, argv=legible, boot_id=boot_id(), cgroup=None if cgroup is None else str(cgroup))
        try:
            _write(self._path(marker), intent, flags=os.O_CREAT | os.O_EXCL)
        except OSError as error:
            if not isinstance(error, FileExistsError):
                self.settle(marker)
            raise _disk_error(error, self.folder) from error
        return intent

    def identify(self, intent: Intent, *, wrapper: ProcessIdentity, agent: ProcessIdentity | None) -> None:
        """Add the identities of the started processes. Raises MachineError if the file cannot be written."""
        try:
            _write(self._path(intent.marker), msgspec.structs.replace(intent, wrapper=wrapper, agent=agent))
        except OSError as error:
            raise _disk_error(error, self.folder) from error

    def settle(self, marker: str) -> None:
        """Remove the intent of a process tree that has ended. If that fails, a later reap removes it."""
        with suppress(OSError):
            self._path(marker).unlink()

    def _path(self, marker: str) -> Path:
        return self.folder / f"{marker}.json"


@asynccontextmanager
async def open_intents(spawns: Path) -> AsyncIterator[IntentLog]:
    """Make a new folder for intents below `spawns`, locked while this process lives.

    Intents that are not settled on leaving stay on disk for the next reap. Raises MachineError if the folder cannot be
    made.
    """
    folder, lock = _make_owner(spawns)
    try:
        yield IntentLog(folder)
    finally:
        if not any(folder.glob("*.json")):
            remove_owner(folder)
        os.close(lock)


def owner_folders(spawns: Path) -> list[Path]:
    """Return the intent folders of all Proctor processes, dead or alive.

    Folders without a lock file and links are ignored. Raises OSError if `spawns` or a folder in it cannot be read.
    """
    try:
        with os.scandir(spawns) as entries:
            folders = sorted(Path(each.path) for each in entries if each.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    return [each for each in folders if not each.name.startswith(_INCOMPLETE) and _has_lock(each)]


def _has_lock(folder: Path) -> bool:
    try:
        (folder / LOCK).lstat()
    except FileNotFoundError:
        return False
    return True


def remove_owner(folder: Path) -> None:
    """Remove an owner's folder. The caller must hold its lock, and no process of the owner may be alive."""
    with suppress(OSError):
        for path in (*folder.glob("*.json"), *folder.glob(f"*{CONTROL_SUFFIX}"), folder / LOCK):
            path.unlink(missing_ok=True)
        folder.rmdir()


def read_intents(folder: Path) -> list[Intent]:
    """Return all intents in a folder, sorted by marker. An incomplete file yields an intent with only its marker."""
    intents: list[Intent] = []
    for path in sorted(folder.glob("*.json")):
        try:
            intents.append(decoding.decode(path.read_bytes(), Intent))
        except msgspec.MsgspecError:
            intents.append(Intent(marker=path.stem, argv=(), boot_id=""))
    return intents


def take_lock(folder: Path, *, is_shared: bool = False) -> int | None:
    """Lock a folder and return the descriptor that holds the lock until it is closed, or None if it is already locked.

    A shared lock only excludes exclusive ones: it is for callers that read and need no owner to be alive. Raises
    OSError if the lock file cannot be opened or is not a regular file.
    """
    try:
        # No child inherits a descriptor from os.open, and the kernel releases the lock when its holder dies.
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(lock).st_mode):
        os.close(lock)
        raise OSError(errno.EINVAL, "the lock is not a regular file")
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        # The last owner may have removed the folder in the meantime. The lock is then on a deleted file.
        if os.path.samestat(os.fstat(lock), (folder / LOCK).lstat()):
            return lock
    except (BlockingIOError, FileNotFoundError, NotADirectoryError):
        pass
    os.close(lock)
    return None


def _make_owner(spawns: Path) -> tuple[Path, int]:
    try:
        spawns.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Made under a name that reaping ignores and renamed once locked: no reaper ever sees it unlocked.
        incomplete = Path(tempfile.mkdtemp(prefix=_INCOMPLETE, dir=spawns))
        lock = take_lock(incomplete)
        assert lock is not None, "no other process knows the new folder"
        return incomplete.rename(spawns / f"{os.getpid()}-{secrets.token_hex(4)}"), lock
    except OSError as error:
        raise _disk_error(error, spawns) from error


def _write(path: Path, intent: Intent, *, flags: int = 0) -> None:
    data = canonical.encode(intent)
    file = os.open(path, os.O_WRONLY | flags, 0o600)
    try:
        if os.write(file, data) != len(data):
            # On a full disk the write that reaches the limit is short, without an error.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(file)


def _disk_error(error: OSError, folder: Path) -> MachineError:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    code = "machine.disk-full" if is_full else "machine.unwritable"
    return MachineError(code, f"cannot write a spawn intent: {error.strerror}", file=str(folder))
