"""List a tree on disk: every path once, in a fixed order, without following links or opening files that could block."""

import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final

from proctor.errors import exhaustion_code

# The limit for copying and hashing, so that a sparse file of a terabyte does not block an attempt.
MAX_TREE_BYTES: Final = 8 * 1024**3
# The limit for listing, so that a folder with endless empty files does not use up the memory.
MAX_ENTRIES: Final = 1_000_000


class EntryKind(StrEnum):
    FILE = "file"
    DIR = "dir"
    LINK = "link"
    FIFO = "fifo"
    SOCKET = "socket"
    DEVICE = "device"
    UNKNOWN = "unknown"
    """The kind could not be determined, or is not one of the others."""


_KINDS: Final = {
    stat.S_IFREG: EntryKind.FILE,
    stat.S_IFDIR: EntryKind.DIR,
    stat.S_IFLNK: EntryKind.LINK,
    stat.S_IFIFO: EntryKind.FIFO,
    stat.S_IFSOCK: EntryKind.SOCKET,
    stat.S_IFBLK: EntryKind.DEVICE,
    stat.S_IFCHR: EntryKind.DEVICE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkEntry:
    """One path below the root of a walk."""

    path: str
    """The path relative to the root, with surrogate escapes for bytes that are not text."""
    kind: EntryKind
    mode: int = 0
    """The permission bits (0o777)."""
    size_bytes: int = 0
    """The size of a file; 0 for other kinds."""
    modified_ns: int = 0
    """The modification time, in nanoseconds since the epoch."""
    target: str | None = None
    """The target of a link, unchanged; None for other kinds."""
    denied: str | None = None
    """Why the entry could not be examined or a folder not be listed; None if there was no error."""
    exhaustion: str | None = None
    """The error code, if that was because the machine lacks memory or descriptors or its disk fails; else None."""


def walk(root: Path) -> list[WalkEntry]:
    """Return everything below `root`, sorted by the bytes of the paths, so that a folder precedes its content.

    Never raises OSError: an entry that cannot be read has `denied` set. A root that does not exist, cannot be listed or
    is a link, and a tree with more than MAX_ENTRIES entries, yield one entry with the path `.`.
    """
    result: list[WalkEntry] = []
    folders = [WalkEntry(path="", kind=EntryKind.DIR)]
    while folders:
        folder = folders.pop()
        try:
            inside = _list(root, folder)
        except OSError as problem:
            result.append(_denied(folder, problem))
            continue
        if folder.path:
            result.append(folder)
        for item in inside:
            (folders if item.kind is EntryKind.DIR else result).append(item)
        if len(result) + len(folders) > MAX_ENTRIES:
            return [WalkEntry(path=".", kind=EntryKind.UNKNOWN, denied=f"more than {MAX_ENTRIES} entries")]
    return sorted(result, key=lambda item: os.fsencode(item.path))


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError for anything else, without following links or blocking."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_link(place: Path) -> str:
    """Return the target of a link unchanged. Path.readlink would normalize it."""
    return os.readlink(place)  # noqa: PTH115


def _list(root: Path, folder: WalkEntry) -> list[WalkEntry]:
    descriptor = os.open(
        f"{root}/{folder.path}".rstrip("/"), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    )
    try:
        with os.scandir(descriptor) as entries:
            return [_examine(entry, folder=folder, descriptor=descriptor) for entry in entries]
    finally:
        os.close(descriptor)


def _examine(entry: os.DirEntry[str], *, folder: WalkEntry, descriptor: int) -> WalkEntry:
    path = f"{folder.path}/{entry.name}" if folder.path else entry.name
    try:
        status = entry.stat(follow_symlinks=False)
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), EntryKind.UNKNOWN)
        return WalkEntry(
            path=path,
            kind=kind,
            mode=stat.S_IMODE(status.st_mode) & 0o777,
            size_bytes=status.st_size if kind is EntryKind.FILE else 0,
            modified_ns=status.st_mtime_ns,
            target=os.readlink(entry.name, dir_fd=descriptor) if kind is EntryKind.LINK else None,
        )
    except OSError as problem:
        return _denied(WalkEntry(path=path, kind=EntryKind.UNKNOWN), problem)


def _denied(item: WalkEntry, problem: OSError) -> WalkEntry:
    return WalkEntry(
        path=item.path or ".",
        kind=item.kind if item.path else EntryKind.UNKNOWN,
        mode=item.mode,
        modified_ns=item.modified_ns,
        denied=problem.strerror or "unreadable",
        exhaustion=exhaustion_code(problem.errno),
    )
