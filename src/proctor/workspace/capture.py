"""Capture a workspace after its agent has stopped, and find what the agent left that prevents judging it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.workspace.name import quoted
from proctor.workspace.snapshot import EMPTY, Entry, Snapshot, is_empty, remove_leftovers, snapshot
from proctor.workspace.walk import MAX_TREE_BYTES, EntryKind

# Below the kernel's limit of 4,096 bytes for a whole path, because a probe's copy has a longer path.
MAX_PATH_BYTES: Final = 3072


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """A workspace as an agent left it."""

    snapshot: Snapshot
    defect: str | None = None
    """What prevents judging the workspace, all of it the agent's doing; None if nothing does."""


def capture(root: Path, base: Snapshot) -> Capture:
    """Take a snapshot without the empty files that agents leave behind, and find the first defect.

    `base` is the untouched workspace, which has none. Raises MachineError if the machine cannot read the workspace.
    """
    if is_empty(root):
        return Capture(snapshot=EMPTY)
    if (mount := _find_mount(root)) is not None:
        what = f"a file system is mounted at {quoted(mount)}"
        unread = Entry(path=".", kind=EntryKind.UNKNOWN, unread=what)
        return Capture(snapshot=Snapshot(entries=(unread,)), defect=what)
    remove_leftovers(root, base)
    now = snapshot(root)
    return Capture(snapshot=now, defect=_find_defect(now))


def _find_defect(now: Snapshot) -> str | None:
    size_bytes = sum(entry.size_bytes for entry in now.entries)
    if size_bytes > MAX_TREE_BYTES:
        return f"it has {size_bytes} bytes; the limit for a workspace is {MAX_TREE_BYTES} bytes"
    for entry in now.entries:
        if entry.path == "." and entry.unread is not None:
            return f"the workspace folder was removed, replaced or made unreadable: {entry.unread}"
        if entry.unread is not None:
            return f"{_shown(entry.path)} cannot be read: {entry.unread}"
        if len(os.fsencode(entry.path)) > MAX_PATH_BYTES:
            return f"the path {_shown(entry.path)} has more than {MAX_PATH_BYTES} bytes"
    return None


def _shown(path: str) -> str:
    name = quoted(path)
    return name if len(name) <= 120 else f"{name[:60]}…{name[-59:]}"


def _find_mount(root: Path) -> str | None:
    """Return the first mount point at or below `root` in this process's view, or None."""
    below = f"{root.resolve()}/"
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        # The mount point is the fifth field of proc_pid_mountinfo(5); a space in it is written as \040.
        place = os.fsdecode(line.split(b" ")[4]).replace("\\040", " ")
        if f"{place}/".startswith(below):
            return place
    return None
