"""How evidence reaches the disk and is opened again: private files, whole writes, typed refusals."""

import contextlib
import errno
import hashlib
import io
import os
import stat
from pathlib import Path

from proctor.errors import EvidenceError, MachineError, disk_refusal

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_READ_BYTES = 64 * 1024

# No agent says so much; a sparse file that claims to be larger would be read for hours.
MAX_FILE_BYTES = 4 * 1024**3


def make_folder(path: Path) -> None:
    """A new private folder, with the private folders it stands in; one that exists is an error."""
    try:
        try:
            path.mkdir(_FOLDER_MODE)
        except FileNotFoundError:
            _make_parents(path)
            path.mkdir(_FOLDER_MODE)
    except OSError as error:
        raise disk_refusal(error, path=path) from error


def _make_parents(path: Path) -> None:
    # Not mkdir(parents=True): that gives the parents the umask's mode.
    for parent in reversed(path.parents):
        if not parent.is_dir():
            parent.mkdir(_FOLDER_MODE, exist_ok=True)
            _sync_folder(parent.parent)


def beside(path: Path) -> Path:
    """Where a file is written before it gets its name."""
    return path.with_name(f".{path.name}.tmp")


def replace_file(path: Path, data: bytes, *, is_durable: bool = True) -> None:
    """The whole file or nothing: written beside, then renamed. Durable unless a later seal will see to that."""
    # Strings from here on: every attempt writes seven of these, and a Path takes longer to make than some of the calls.
    name = str(path)
    folder, slash, file = name.rpartition("/")
    draft = f"{folder}{slash}.{file}.tmp"  # which is beside(path)
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
        try:
            _write_all(fd, data)
            if is_durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(draft, name)  # noqa: PTH105
        if is_durable:
            _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(draft)  # noqa: PTH108
        raise disk_refusal(error, path=path) from error


def sync_file(path: Path) -> None:
    """What was written to it survives a power loss."""
    fd = open_descriptor(path)
    try:
        os.fsync(fd)
    except OSError as error:
        raise disk_refusal(error, path=path) from error
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """What was renamed or created in it survives a power loss."""
    try:
        _sync_folder(path)
    except OSError as error:
        raise disk_refusal(error, path=path) from error


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    # A disk that fills up gives a short write first and the error only at the next one.
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


class AppendOnly:
    """A new file that only grows. After one failed write it takes no more, so no whole row follows half a row.

    Without a path it takes everything and keeps nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path or Path(os.devnull)
        self.size_bytes = 0
        self._sha256 = hashlib.sha256()
        self._broken: str | None = None
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        if path is not None:
            flags |= os.O_CREAT | os.O_EXCL
        try:
            self._fd = os.open(str(self.path), flags, _FILE_MODE)
        except OSError as error:
            raise disk_refusal(error, path=path) from error

    def append(self, data: bytes) -> None:
        if self._broken is not None:
            raise MachineError(self._broken, "an earlier row could not be written whole", file=str(self.path))
        try:
            _write_all(self._fd, data)
            self._sha256.update(data)
            self.size_bytes += len(data)
        except OSError as error:
            problem = disk_refusal(error, path=self.path)
            self._broken = problem.code
            raise problem from error

    @property
    def sha256(self) -> str:
        """Of what was written, whatever stands there by now."""
        return self._sha256.hexdigest()

    @property
    def is_broken(self) -> bool:
        return self._broken is not None

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise disk_refusal(error, path=self.path) from error

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def open_regular(path: Path) -> io.BufferedReader:
    """For reading, a file that is really there and really a file; else an EvidenceError."""
    return io.BufferedReader(io.FileIO(open_descriptor(path)), _READ_BYTES)


def open_descriptor(path: Path) -> int:
    """The same, for whoever reads it in one go and closes it."""
    try:
        # Non-blocking, because opening somebody's FIFO would otherwise wait for a writer for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(error, path=path) from error
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise EvidenceError("evidence.containment", "not a regular file", file=path.name)
    if found.st_size > MAX_FILE_BYTES:
        os.close(fd)
        raise EvidenceError("evidence.bounds", f"over {MAX_FILE_BYTES} bytes", file=path.name)
    return fd


def unreadable(error: OSError, *, path: Path) -> EvidenceError:
    """What a file that cannot be read means for the evidence."""
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return EvidenceError("evidence.missing-file", "absent", file=path.name)
        case errno.ELOOP | errno.ENXIO:  # a symbolic link, a socket
            return EvidenceError("evidence.containment", "not a regular file", file=path.name)
        case _:
            return EvidenceError("evidence.unreadable", os.strerror(error.errno or errno.EIO), file=path.name)
