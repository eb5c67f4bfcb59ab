"""What a program changed in its view, as Proctor finds it on the disk afterwards."""

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.probe.model import ViewKind
from proctor.probe.view import View
from proctor.spec.service_probes import ChangeKind
from proctor.workspace.walk import EntryKind, WalkEntry, open_regular, walk

_WHITEOUT: Final = os.makedev(0, 0)
# Every overlay is mounted with `userxattr`. A program in the overlay cannot set these attributes.
_OPAQUE: Final = "user.overlay.opaque"
_UNSUPPORTED: Final = ("user.overlay.redirect", "user.overlay.metacopy")
_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """A path of a view, and where it is outside the fence. No part of that path is a link."""

    item: WalkEntry
    place: Path


Tree = dict[str, TreeEntry]
"""All entries of a view, by their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """A view at one moment."""

    tree: Tree
    digests: Mapping[str, str] | None
    """The digests of files, which the program could overwrite; None if it cannot reach them."""


def read_before(view: View) -> ViewState:
    """Return the state of a view before a program runs in it."""
    tree = _merge({}, view.layers)
    if view.kind is ViewKind.OVERLAY:
        return ViewState(tree=tree, digests=None)
    files = {path: entry for path, entry in tree.items() if entry.item.kind is EntryKind.FILE}
    return ViewState(tree=tree, digests={path: _digest(entry.place) for path, entry in files.items()})


def read_after(view: View, before: ViewState) -> Tree:
    """Return the entries of a view after its programs have ended."""
    if view.kind is ViewKind.COPY:
        return _merge({}, view.layers)
    assert view.changes is not None, "the layout keeps the changes"
    return _merge(before.tree, [view.changes])


def find_changes(before: ViewState, after: Tree) -> dict[str, ChangeKind]:
    """Return the files, links and empty folders that were created, changed or deleted, by their paths.

    A file is changed if its content, its kind or whether it is executable differs; its time does not count. A folder
    with content exists because of it, and is no change itself.
    """
    full_before, full_after = _folders_with_content(before.tree), _folders_with_content(after)
    found: dict[str, ChangeKind] = {}
    for path in sorted({*before.tree, *after}):
        old, new = before.tree.get(path), after.get(path)
        is_old = old is not None and path not in full_before
        is_new = new is not None and path not in full_after
        if new is not None and new.item.denied is not None:
            found[path] = ChangeKind.CHANGED
        elif old is None or new is None:
            if is_old or is_new:
                found[path] = ChangeKind.CREATED if old is None else ChangeKind.DELETED
        elif EntryKind.DIR in (old.item.kind, new.item.kind):
            if old.item.kind is not new.item.kind:
                is_file = new.item.kind is not EntryKind.DIR
                found[path] = ChangeKind.CREATED if is_file else ChangeKind.DELETED
        elif not _is_same(path, old, new, before.digests):
            found[path] = ChangeKind.CHANGED
    return found


def _merge(lower: Tree, layers: Iterable[Path]) -> Tree:
    """Lay folders over a tree, as an overlay mount shows them. Returns a new tree."""
    tree = dict(lower)
    for layer in layers:
        entries = [TreeEntry(item=item, place=layer / item.path) for item in walk(layer)]
        if tree:
            hiding = {entry.item.path for entry in entries if _hides_lower(entry)}
            tree = {path: entry for path, entry in tree.items() if hiding.isdisjoint(_with_parents(path))}
        tree |= {entry.item.path: entry for entry in entries if not _is_whiteout(entry)}
    return tree


def _hides_lower(entry: TreeEntry) -> bool:
    """Return whether nothing of the layers below is visible at or below this path."""
    if entry.item.kind is not EntryKind.DIR:
        return True
    try:
        names = os.listxattr(entry.place, follow_symlinks=False)
    except OSError:
        return False  # a folder that cannot be read counts as changed
    if any(name in names for name in _UNSUPPORTED):
        raise NotImplementedError("the overlay uses a feature that is not supported")
    return _OPAQUE in names


def _is_whiteout(entry: TreeEntry) -> bool:
    if entry.item.kind is not EntryKind.DEVICE:
        return False
    status = entry.place.lstat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == _WHITEOUT


def _with_parents(path: str) -> Sequence[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _folders_with_content(tree: Tree) -> set[str]:
    return {path.rpartition("/")[0] for path in tree}


def _is_same(path: str, old: TreeEntry, new: TreeEntry, digests: Mapping[str, str] | None) -> bool:
    if digests is None and old.place == new.place:
        return True
    one, other = old.item, new.item
    if (one.kind, one.target, one.size_bytes, one.mode & 0o100) != (
        *(other.kind, other.target, other.size_bytes),
        other.mode & 0o100,
    ):
        return False
    if one.kind is not EntryKind.FILE:
        return True
    return (digests[path] if digests is not None else _digest(old.place)) == _digest(new.place)


def _digest(place: Path) -> str:
    """Return the digest of a file; a text that differs from every digest if it cannot be read."""
    sha256 = hashlib.sha256()
    try:
        with open_regular(place) as file:
            while chunk := file.read(_CHUNK_BYTES):
                sha256.update(chunk)
    except OSError as error:
        return f"unread: {error.strerror}"
    return sha256.hexdigest()
