"""Read the HEAD and refs of a workspace's git repository, independent of how they are stored, without running git."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.workspace.walk import EntryKind, WalkEntry, open_regular

GIT: Final = ".git"
SHALLOW: Final = "shallow"
"""Name of the file in a `.git` folder that lists the commits at which a shallow history ends."""

# Not compared: objects follow from the refs, a ref is the same packed or loose, the index holds times and inodes, and
# the logs hold history.
_STORAGE: Final = ("packed-refs", "index", "info/refs")
_STORES: Final = ("objects/", "refs/", "logs/")
_MAX_REF_BYTES: Final = 4096
_MAX_PACKED_BYTES: Final = 16 * 1024 * 1024
_UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The state of a git repository."""

    head: str
    """The content of the HEAD file: `ref: NAME`, or a commit id."""
    refs: tuple[tuple[str, str], ...]
    """Each ref's name and value, sorted by name."""

    @property
    def commits(self) -> frozenset[str]:
        """The object ids that HEAD and the refs name."""
        return frozenset(each for each in (self.head, *dict(self.refs).values()) if _is_id(each))

    @property
    def at(self) -> str:
        """The branch of HEAD and its commit, or the commit id of a detached HEAD, for display.

        >>> Repository(head="ref: refs/heads/main", refs=(("refs/heads/main", "aa11"),)).at
        'refs/heads/main at aa11'
        """
        branch = self.head.removeprefix("ref: ")
        return self.head if branch == self.head else f"{branch} at {dict(self.refs).get(branch, 'no commit')}"


def read_repository(root: Path, entries: Sequence[WalkEntry]) -> Repository | None:
    """Read the repository at the top of a workspace whose walk returned `entries`; None if there is no repository.

    An agent may have written it, so nothing in it is trusted or executed.
    """
    inside = {item.path: item for item in entries if item.path.startswith(f"{GIT}/")}
    head = inside.get(f"{GIT}/HEAD")
    if head is None or head.kind is not EntryKind.FILE:
        return None
    refs = _read_packed(root / GIT / "packed-refs") if f"{GIT}/packed-refs" in inside else {}
    for path, item in inside.items():
        if path.startswith(f"{GIT}/refs/") and item.kind is not EntryKind.DIR:
            refs[path.removeprefix(f"{GIT}/")] = _read(root / path, limit_bytes=_MAX_REF_BYTES).strip()
    return Repository(
        head=_read(root / head.path, limit_bytes=_MAX_REF_BYTES).strip(), refs=tuple(sorted(refs.items()))
    )


def is_storage(item: WalkEntry) -> bool:
    """Return whether an entry is internal storage of the top-level repository, which snapshots leave out.

    >>> paths = (".git/index", ".git/config", "logs/.git/index")
    >>> [is_storage(WalkEntry(path=path, kind=EntryKind.FILE)) for path in paths]
    [True, False, False]
    """
    top, _, below = item.path.partition("/")
    is_stored = item.kind is EntryKind.DIR or below in _STORAGE or below.startswith(_STORES)
    return top == GIT and below != "" and is_stored


def _read_packed(file: Path) -> dict[str, str]:
    lines = _read(file, limit_bytes=_MAX_PACKED_BYTES).splitlines()
    pairs = [line.split(" ", 1) for line in lines if line[:1] not in ("#", "^")]
    return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}


def _read(file: Path, *, limit_bytes: int) -> str:
    try:
        with open_regular(file) as opened:
            return os.fsdecode(opened.read(limit_bytes))
    except OSError:
        return _UNREADABLE


def _is_id(text: str) -> bool:
    return len(text) in (40, 64) and all(char in "0123456789abcdef" for char in text)
