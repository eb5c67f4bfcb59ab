"""A tree as it lies on disk: every path once, in one order, no link followed, nothing opened that could block."""

import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final

# More than this is neither copied nor hashed: one sparse file of a terabyte must not hold up an attempt.
MAX_TREE_BYTES: Final = 8 * 1024**3


class EntryKind(StrEnum):
    FILE = "file"
    DIR = "dir"
    LINK = "link"
    FIFO = "fifo"
    SOCKET = "socket"
    DEVICE = "device"
    UNKNOWN = "unknown"  # it could not even be looked at


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
class Found:
    """One path below the root. `denied` says why a folder could not be listed or a link not be read."""

    path: str
    kind: EntryKind
    mode: int = 0
    size_bytes: int = 0
    modified_ns: int = 0
    target: str | None = None
    denied: str | None = None


def walk(root: Path) -> list[Found]:
    """Everything below `root`, sorted by the bytes of its path, so that a folder comes before what it holds.

    Never raises: what cannot be read is found and says so. A root that is gone, or has become a link, is found as `.`.
    """
    found: list[Found] = []
    folders = [Found(path="", kind=EntryKind.DIR)]
    while folders:
        folder = folders.pop()
        try:
            inside = _list(root, folder)
        except OSError as problem:
            found.append(_denied(folder, problem))
            continue
        if folder.path:
            found.append(folder)
        for item in inside:
            (folders if item.kind is EntryKind.DIR else found).append(item)
    return sorted(found, key=lambda item: os.fsencode(item.path))


def open_regular(path: Path) -> BinaryIO:
    """A file's bytes; OSError for anything else, decided without following a link or waiting for a writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return os.fdopen(descriptor, "rb")


def read_link(place: Path) -> str:
    """A link's own words, which Path.readlink would tidy."""
    return os.readlink(place)  # noqa: PTH115


def _list(root: Path, folder: Found) -> list[Found]:
    descriptor = os.open(
        f"{root}/{folder.path}".rstrip("/"), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    )
    try:
        with os.scandir(descriptor) as entries:
            return [_look(entry, folder=folder, descriptor=descriptor) for entry in entries]
    finally:
        os.close(descriptor)


def _look(entry: os.DirEntry[str], *, folder: Found, descriptor: int) -> Found:
    path = f"{folder.path}/{entry.name}" if folder.path else entry.name
    try:
        status = entry.stat(follow_symlinks=False)
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), EntryKind.UNKNOWN)
        return Found(
            path=path,
            kind=kind,
            mode=stat.S_IMODE(status.st_mode) & 0o777,
            size_bytes=status.st_size if kind is EntryKind.FILE else 0,
            modified_ns=status.st_mtime_ns,
            target=os.readlink(entry.name, dir_fd=descriptor) if kind is EntryKind.LINK else None,
        )
    except OSError as problem:
        return _denied(Found(path=path, kind=EntryKind.UNKNOWN), problem)


def _denied(item: Found, problem: OSError) -> Found:
    return Found(
        path=item.path or ".",
        kind=item.kind if item.path else EntryKind.UNKNOWN,
        mode=item.mode,
        modified_ns=item.modified_ns,
        denied=problem.strerror or "it cannot be read",
    )
