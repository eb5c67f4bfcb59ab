"""Snapshot a workspace: names, kinds, executable bits, contents, link targets and git refs, with one digest."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from proctor.canonical import digest
from proctor.errors import MachineError, exhaustion_code
from proctor.ids import Digest
from proctor.workspace.name import quoted
from proctor.workspace.repository import Repository, is_storage, read_repository
from proctor.workspace.walk import MAX_TREE_BYTES, EntryKind, WalkEntry, open_regular, walk

# Empty files and folders that the Codex sandbox leaves at the top of every workspace in which it ran a command.
LEFTOVERS: Final = (".agents", ".aws", ".codex", ".git")

_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One path of a snapshot."""

    path: str
    kind: EntryKind
    executable: bool = False
    """Whether a file's owner may execute it."""
    size_bytes: int = 0
    sha256: Digest | None = None
    """The digest of a file's content; None for other kinds and for files that were not read."""
    target: str | None = None
    """The target of a link; None for other kinds."""
    unread: str | None = None
    """Why the content was not read, so that the snapshot's digest does not cover it; None if it was read."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A tree at one moment. Internal storage of a git repository at its top is not among the entries."""

    entries: tuple[Entry, ...]
    repository: Repository | None = None

    @cached_property
    def digest(self) -> Digest:
        """The digest of the tree. Equal trees have equal digests, regardless of their location and file times."""
        rows: list[object] = [_row(entry) for entry in self.entries]
        if self.repository is not None:
            rows.append(["refs", *((quoted(name), quoted(at)) for name, at in self.repository.refs)])
        return digest(rows)

    @cached_property
    def by_path(self) -> dict[str, Entry]:
        return {entry.path: entry for entry in self.entries}


EMPTY: Final = Snapshot(entries=())


def snapshot(root: Path, *, max_bytes: int = MAX_TREE_BYTES) -> Snapshot:
    """Take a snapshot of any tree; never raises OSError.

    Files are read in the order of their paths, at most `max_bytes` in total. A file that would exceed it is not read.
    Raises MachineError if an entry cannot be read because the machine lacks memory or descriptors or its disk fails.
    """
    items = walk(root)
    repository = read_repository(root, items)
    entries = []
    for item in items:
        if item.exhaustion is not None:
            raise MachineError(item.exhaustion, f"cannot read {quoted(item.path)}: {item.denied}", file=str(root))
        if repository is None or not is_storage(item):
            entry = _entry(root, item, left_bytes=max_bytes)
            max_bytes -= entry.size_bytes if entry.sha256 else 0
            entries.append(entry)
    return Snapshot(entries=tuple(entries), repository=repository)


def is_empty(root: Path) -> bool:
    """Return whether `root` is an empty folder. False for a link to one and for a folder that cannot be listed."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with os.scandir(descriptor) as entries:
            return next(entries, None) is None
    finally:
        os.close(descriptor)


def remove_leftovers(root: Path, base: Snapshot, *, names: Sequence[str] = LEFTOVERS) -> tuple[str, ...]:
    """Remove those of `names` that are empty files or folders in `root` and not in `base`. Return the removed names."""
    if root.is_symlink():
        return ()
    return tuple(name for name in names if name not in base.by_path and _remove_if_empty(root / name))


def _remove_if_empty(place: Path) -> bool:
    try:
        status = place.lstat()
        if place.is_symlink():
            return False
        if place.is_dir():
            place.rmdir()
        elif place.is_file() and status.st_size == 0:
            place.unlink()
        else:
            return False
    except OSError:
        return False
    return True


def _entry(root: Path, item: WalkEntry, *, left_bytes: int) -> Entry:
    sha256, unread = None, item.denied
    if item.kind is EntryKind.FILE:
        sha256, unread = _hash(root / item.path, size_bytes=item.size_bytes, left_bytes=left_bytes)
    return Entry(
        path=item.path,
        kind=item.kind,
        executable=item.kind is EntryKind.FILE and bool(item.mode & 0o100),
        size_bytes=item.size_bytes,
        sha256=sha256,
        target=item.target,
        unread=unread,
    )


def _hash(place: Path, *, size_bytes: int, left_bytes: int) -> tuple[Digest | None, str | None]:
    if size_bytes > left_bytes:
        return None, "too large"
    sha256, seen_bytes = hashlib.sha256(), 0
    try:
        with open_regular(place) as file:
            while chunk := file.read(_CHUNK_BYTES):
                seen_bytes += len(chunk)
                if seen_bytes > size_bytes:
                    return None, "the file grew while it was read"
                sha256.update(chunk)
    except OSError as problem:
        if (code := exhaustion_code(problem.errno)) is not None:
            raise MachineError(code, f"cannot read it: {problem.strerror}", file=str(place)) from problem
        return None, problem.strerror or "unreadable"
    return Digest("sha256:" + sha256.hexdigest()), None


def _row(entry: Entry) -> tuple[str, str, bool, int, str | None]:
    content: str | None = entry.sha256
    if entry.target is not None:
        content = quoted(entry.target)
    elif entry.unread is not None:
        content = "unread"
    return quoted(entry.path), entry.kind.value, entry.executable, entry.size_bytes, content
