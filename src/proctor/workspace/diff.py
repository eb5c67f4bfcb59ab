"""Compare two trees and write the changes in the format of `git diff`: valid UTF-8, bounded and deterministic."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proctor.workspace.commits import describe_repository
from proctor.workspace.hunks import render_hunks
from proctor.workspace.name import quoted
from proctor.workspace.repository import GIT
from proctor.workspace.snapshot import EMPTY, Entry, Snapshot, snapshot
from proctor.workspace.walk import EntryKind, open_regular

MAX_FILE_BYTES: Final = 256 * 1024
MAX_TOTAL_BYTES: Final = 4 * 1024 * 1024

_GIT_KINDS: Final = (EntryKind.FILE, EntryKind.LINK)


def diff(
    base_root: Path | None,
    now_root: Path,
    *,
    base: Snapshot | None = None,
    now: Snapshot | None = None,
    max_file_bytes: int = MAX_FILE_BYTES,
    max_total_bytes: int = MAX_TOTAL_BYTES,
) -> bytes:
    """Return the changes from `base_root` to `now_root`. A base of None is the empty tree.

    Snapshots are taken unless given. Changes of text files can be applied with `git apply`. A file that is not text, is
    too large or cannot be read is described by its size and digest. Lines that begin with `#` describe what git diffs
    cannot express (empty folders, pipes, changes of the repository in `.git`) and where the output was cut.
    """
    if base is None:
        base = EMPTY if base_root is None else snapshot(base_root)
    if now is None:
        now = snapshot(now_root)
    paths = _changed(base, now)
    comments = describe_repository(base.repository, now.repository, base_root=base_root, now_root=now_root)
    out = [f"{line}\n".encode() for line in comments]
    left_bytes = max_total_bytes - sum(map(len, out))
    for done, path in enumerate(paths):
        section = b"".join(
            _section(
                _Side(prefix="a/", root=base_root, entry=base.by_path.get(path), path=path, max_bytes=max_file_bytes),
                _Side(prefix="b/", root=now_root, entry=now.by_path.get(path), path=path, max_bytes=max_file_bytes),
            )
        )
        left_bytes -= len(section)
        if left_bytes < 0:
            out.append(f"# cut: {len(paths) - done} changed paths left out, from {quoted(path)} on\n".encode())
            break
        out.append(section)
    return b"".join(out)


def _changed(base: Snapshot, now: Snapshot) -> list[str]:
    """Return the paths whose entries differ or cannot be compared. Folders count only if they are empty."""
    base_folders, now_folders = _filled_folders(base), _filled_folders(now)
    changed = []
    for path in sorted({*base.by_path, *now.by_path}, key=os.fsencode):
        old, new = base.by_path.get(path), now.by_path.get(path)
        if old is not None and old.kind is EntryKind.DIR and path in base_folders:
            old = None
        if new is not None and new.kind is EntryKind.DIR and path in now_folders:
            new = None
        if old != new or (new is not None and new.unread is not None):
            changed.append(path)
    return changed


def _filled_folders(tree: Snapshot) -> set[str]:
    return {path.rpartition("/")[0] for path in tree.by_path}


class _Side:
    """One path in one of the two trees."""

    def __init__(self, *, prefix: str, root: Path | None, entry: Entry | None, path: str, max_bytes: int) -> None:
        self.entry = entry
        self.name = quoted(prefix + path)
        self.path = quoted(path)
        self.is_git = entry is not None and entry.kind in _GIT_KINDS and not path.startswith(f"{GIT}/")
        self.text: bytes | None = None
        self.why_not_shown = "not text"
        if entry is not None and self.is_git:
            self._read(root, entry, max_bytes=max_bytes)

    @property
    def mode(self) -> str:
        if self.entry is not None and self.entry.kind is EntryKind.LINK:
            return "120000"
        return "100755" if self.entry is not None and self.entry.executable else "100644"

    def describe(self) -> bytes:
        """Return a comment line with the size and digest, for content that is not shown as text."""
        if self.entry is None:
            return b""
        content = self.entry.sha256 or (quoted(self.entry.target) if self.entry.target is not None else "no digest")
        return f"# {self.name}: {self.entry.size_bytes} bytes, {content}, {self.why_not_shown}\n".encode()

    def _read(self, root: Path | None, entry: Entry, *, max_bytes: int) -> None:
        if entry.unread is not None:
            self.why_not_shown = entry.unread
            return
        data = b""
        if entry.target is not None:
            data = os.fsencode(entry.target)
        elif root is not None:
            if entry.size_bytes > max_bytes:
                self.why_not_shown = "too large to show"
                return
            try:
                with open_regular(root / entry.path) as file:
                    data = file.read(max_bytes + 1)
            except OSError as problem:
                self.why_not_shown = problem.strerror or "unreadable"
                return
        if b"\0" not in data and _is_utf8(data):
            self.text = data


def _section(old: _Side, new: _Side) -> Iterator[bytes]:
    if old.is_git and new.is_git and (old.mode == "120000") == (new.mode == "120000"):
        yield from _edit_section(old, new)
        return
    for side, verb in ((old, "removed"), (new, "new")):
        if side.entry is not None and not side.is_git:
            kind = "folder" if side.entry.kind is EntryKind.DIR else side.entry.kind.value
            note = side.entry.unread or side.entry.sha256 or ("empty" if kind == "folder" else "")
            yield f"# {verb} {kind} {side.path}{note and f' ({note})'}\n".encode()
    if old.is_git:
        yield f"diff --git {old.name} {new.name}\ndeleted file mode {old.mode}\n".encode()
        yield from _body(old, None)
    if new.is_git:
        yield f"diff --git {old.name} {new.name}\nnew file mode {new.mode}\n".encode()
        yield from _body(None, new)


def _edit_section(old: _Side, new: _Side) -> Iterator[bytes]:
    yield f"diff --git {old.name} {new.name}\n".encode()
    if old.mode != new.mode:
        yield f"old mode {old.mode}\nnew mode {new.mode}\n".encode()
    if old.text is None or old.text != new.text:
        yield from _body(old, new)


def _body(old: _Side | None, new: _Side | None) -> Iterator[bytes]:
    sides = [side for side in (old, new) if side is not None]
    names = [side.name if side is not None else "/dev/null" for side in (old, new)]
    if any(side.text is None for side in sides):
        yield f"Binary files {names[0]} and {names[1]} differ\n".encode()
        yield from (side.describe() for side in sides)
        return
    hunks = render_hunks((old and old.text) or b"", (new and new.text) or b"")
    if hunks:
        # git writes a tab after a name that contains a space.
        suffixes = ["\t" if " " in name else "" for name in names]
        yield f"--- {names[0]}{suffixes[0]}\n+++ {names[1]}{suffixes[1]}\n".encode()
        yield hunks


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
