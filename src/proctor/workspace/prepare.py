"""Prepare the workspace of an attempt: an empty folder, or a copy of a folder without references to the outside."""

import os
import re
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from proctor.errors import InputError
from proctor.workspace.copy import copy_tree, unwritable
from proctor.workspace.name import quoted
from proctor.workspace.remove import remove
from proctor.workspace.walk import EntryKind, WalkEntry, read_link, walk

_MAX_HOPS: Final = 40  # the kernel's limit
_SYSTEM: Final = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")
_OUTSIDE_CONFIG = re.compile(
    rb"""^[ \t]*(worktree|path|hookspath)[ \t]*=|^[ \t]*(push)?url[ \t]*=[ \t]*"?(/|\.|~|file:)""",
    re.IGNORECASE | re.MULTILINE,
)


def prepare(source: Path | None, *, into: Path, exclude: Sequence[str] = ()) -> None:
    """Create `into`, which must not exist, as a private copy of `source`; None makes an empty folder.

    The files and folders in `exclude`, paths relative to `source`, are left out.

    Raises InputError if `source` is not a folder, contains `into`, or has an entry that cannot be copied or leads
    outside. Raises MachineError if `into` cannot be written.
    """
    entries: list[WalkEntry] = []
    if source is not None:
        if not source.is_dir():
            raise InputError("spec.missing-file", f"there is no folder {quoted(str(source))}")
        source = source.resolve()
        if into.resolve().is_relative_to(source):
            raise InputError("workspace.inside-itself", f"{quoted(str(into))} is inside {quoted(str(source))}")
        entries = [item for item in walk(source) if not is_excluded(item.path, exclude)]
        for item in entries:
            refuse_unsafe_entry(source, item)
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        into.mkdir(mode=0o700)
    except OSError as problem:
        raise unwritable(into, problem) from None
    if source is not None:
        try:
            copy_tree(source, entries, into=into)
        except BaseException:
            with suppress(OSError):
                remove(into)
            raise


def is_excluded(path: str, exclude: Sequence[str]) -> bool:
    """Return whether a path is one of the excluded ones, or below one.

    >>> [is_excluded(path, ["build/", "a/b"]) for path in ("build", "build/x", "builder", "a", "a/b/c")]
    [True, True, False, False, True]
    """
    return any(f"{path}/".startswith(f"{each.rstrip('/')}/") for each in exclude)


def refuse_unsafe_entry(source: Path, item: WalkEntry) -> None:
    """Raise InputError for an entry that cannot be copied, or that would lead outside from a copy."""
    place = quoted(str(source))
    match item.kind:
        case EntryKind.FIFO | EntryKind.SOCKET | EntryKind.DEVICE:
            what = f"{quoted(item.path)} is a {item.kind}, which cannot be copied"
            raise InputError("workspace.special-file", what, file=place)
        case EntryKind.LINK if leads_out(source, item):
            what = f"{quoted(item.path)} is a link to {quoted(item.target or '')}, outside the workspace"
            raise InputError("workspace.link-out", what, file=place)
        case _ if Path(item.path).name == ".git" and (reason := _outside_repository(source / item.path)):
            raise InputError("workspace.git", f"{quoted(item.path)} {reason}", file=place)


def leads_out(root: Path, link: WalkEntry) -> bool:
    """Return whether resolving a link leaves `root` at any step, even if it returns: in a copy it would not return."""
    here = link.path.split("/")[:-1]
    steps = deque((link.target or "").split("/"))
    if steps[0] == "":
        return True
    hops = 0
    while steps and hops < _MAX_HOPS:
        step = steps.popleft()
        if step == "..":
            if not here:
                return True
            here.pop()
        elif step not in ("", "."):
            try:
                target = read_link(root.joinpath(*here, step))
            except OSError:
                here.append(step)
                continue
            if target.startswith("/"):
                return True
            hops += 1
            steps.extendleft(reversed(target.split("/")))
    return False


def split_links_out(root: Path, entries: Iterable[WalkEntry]) -> tuple[list[WalkEntry], list[WalkEntry]]:
    """Split off the links that lead neither into `root` nor to a system folder such as /usr."""
    inside: list[WalkEntry] = []
    outside: list[WalkEntry] = []
    for item in entries:
        # Resolved, because /usr/../srv is not a system folder.
        is_system = (item.target or "").startswith(_SYSTEM) and os.path.realpath(item.target or "").startswith(_SYSTEM)
        is_out = item.kind is EntryKind.LINK and not is_system and leads_out(root, item)
        (outside if is_out else inside).append(item)
    return inside, outside


def _outside_repository(git: Path) -> str | None:
    """Return how a `.git` refers to another repository, or None.

    From a copy of such a worktree or clone an agent could change the user's own repository.
    """
    if not git.is_dir():
        return "is a file that points to another repository (a linked worktree or a submodule)"
    if (git / "commondir").exists():
        return "shares its branches with another repository"
    if (git / "objects" / "info" / "alternates").exists():
        return "borrows its objects from another repository"
    with suppress(OSError):
        if _OUTSIDE_CONFIG.search((git / "config").read_bytes()):
            return "has a config that names another folder (worktree, hooks, include or a local remote)"
    return None
