"""Writing and opening evidence files: private modes, atomic replacement, typed errors."""

import contextlib
import errno
import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import EvidenceError, MachineError, disk_error

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_READ_BYTES = 64 * 1024

MAX_FILE_BYTES = 4 * 1024**3
"""Limit for reading. No agent says so much, and reading a larger sparse file would take hours."""


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Create a private folder and its missing parents, which are private too.

    Raises MachineError if it cannot be created, or exists although it must not.
    """
    try:
        try:
            path.mkdir(_FOLDER_MODE, exist_ok=exist_ok)
        except FileNotFoundError:
            _make_parents(path)
            path.mkdir(_FOLDER_MODE, exist_ok=exist_ok)
    except OSError as error:
        raise disk_error(error, path=path) from error


def _make_parents(path: Path) -> None:
    # Not mkdir(parents=True), which gives the parents the umask's mode.
    for parent in reversed(path.parents):
        if not parent.is_dir():
            parent.mkdir(_FOLDER_MODE, exist_ok=True)
            _sync_folder(parent.parent)


def draft_path(path: Path) -> Path:
    """Return the path where a file is written before it is renamed."""
    return path.with_name(f".{path.name}.tmp")


def replace_file(path: Path, data: bytes, *, is_durable: bool = True) -> None:
    """Replace a file atomically: write a draft next to it, then rename.

    `is_durable=False` skips the syncs, for files that a later seal syncs. Raises MachineError if the disk refuses.
    """
    # Strings, because every attempt writes seven files, and making a Path takes longer than some of the calls.
    name = str(path)
    folder, slash, file = name.rpartition("/")
    draft = f"{folder}{slash}.{file}.tmp"  # the same as draft_path(path)
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
        raise disk_error(error, path=path) from error


def sync_file(path: Path) -> None:
    """Make the content of a file survive a power loss. Raises EvidenceError or MachineError if it cannot."""
    fd = open_descriptor(path)
    try:
        os.fsync(fd)
    except OSError as error:
        raise disk_error(error, path=path) from error
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power loss. Raises MachineError if it cannot."""
    try:
        _sync_folder(path)
    except OSError as error:
        raise disk_error(error, path=path) from error


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    # A full disk causes a short write first, and the error only at the next write.
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


class AppendOnly:
    """A new file that is only appended to. After a failed write it accepts no more, so no row follows half a row.

    Without a path, the data goes to the null device and is only counted and hashed.
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
            raise disk_error(error, path=path) from error

    def append(self, data: bytes) -> None:
        """Write all bytes. Raises MachineError if the disk refuses or refused before."""
        if self._broken is not None:
            raise MachineError(
                self._broken, "an earlier write failed, so nothing more is appended", file=str(self.path)
            )
        try:
            _write_all(self._fd, data)
            self._sha256.update(data)
            self.size_bytes += len(data)
        except OSError as error:
            refusal = disk_error(error, path=self.path)
            self._broken = refusal.code
            raise refusal from error

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes that were written, as hex, even if the file was changed since."""
        return self._sha256.hexdigest()

    @property
    def is_broken(self) -> bool:
        return self._broken is not None

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise disk_error(error, path=self.path) from error

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading. Raises EvidenceError if it is absent, not a regular file or too large."""
    return io.BufferedReader(io.FileIO(open_descriptor(path)), _READ_BYTES)


def open_descriptor(path: Path) -> int:
    """Open a regular file and return its descriptor, which the caller closes. Raises like `open_regular`."""
    try:
        # Non-blocking, because opening a FIFO would otherwise wait for a writer for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(error, path=path) from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise EvidenceError("evidence.containment", "not a regular file", file=path.name)
    if status.st_size > MAX_FILE_BYTES:
        os.close(fd)
        raise EvidenceError("evidence.bounds", f"larger than {MAX_FILE_BYTES} bytes", file=path.name)
    return fd


def read_chunks(fd: int, *, file: str) -> Iterator[bytes]:
    """Read an open file from its start, whatever its position. Raises EvidenceError, which names `file`."""
    # Not a buffered file: setting one up takes longer than reading a small file.
    position = 0
    try:
        while chunk := os.pread(fd, _READ_BYTES, position):
            position += len(chunk)
            yield chunk
    except OSError as error:
        raise unreadable(error, path=Path(file)) from error


def read_start(fd: int, *, size_bytes: int, file: str) -> bytes:
    """Read the start of an open file, at most `size_bytes`. Raises EvidenceError, which names `file`."""
    data = bytearray()
    for chunk in read_chunks(fd, file=file):
        data += chunk
        if len(data) >= size_bytes:
            break
    return bytes(data[:size_bytes])


def buffer_descriptor(descriptor: Callable[[], int]) -> io.BufferedReader:
    """Return a reader that starts at the start of an open file and has its own position.

    `descriptor` is asked before each read, so that it can refuse once the file is closed: its number may then belong to
    another file. Closing the reader does not close the file.
    """
    return io.BufferedReader(_SharedDescriptor(descriptor), _READ_BYTES)


class _SharedDescriptor(io.RawIOBase):
    def __init__(self, descriptor: Callable[[], int]) -> None:
        self._descriptor = descriptor
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        data = os.pread(self._descriptor(), len(view), self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


def unreadable(error: OSError, *, path: Path) -> EvidenceError:
    """Return the EvidenceError for a file that cannot be read."""
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return EvidenceError("evidence.missing-file", "absent", file=path.name)
        case errno.ELOOP | errno.ENXIO:  # a symbolic link, a socket
            return EvidenceError("evidence.containment", "not a regular file", file=path.name)
        case _:
            return EvidenceError("evidence.unreadable", os.strerror(error.errno or errno.EIO), file=path.name)
