"""A pristine tree for an attempt: a copy of a folder that leads nowhere else, or an empty folder."""

import re
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

from proctor.errors import InputError
from proctor.workspace.copy import copy_tree, unwritable
from proctor.workspace.name import quoted
from proctor.workspace.remove import remove
from proctor.workspace.walk import EntryKind, Found, read_link, walk

_MAX_HOPS: Final = 40  # as many as the kernel follows
_ELSEWHERE = re.compile(
    rb"""^[ \t]*(worktree|path|hookspath)[ \t]*=|^[ \t]*(push)?url[ \t]*=[ \t]*"?(/|\.|~|file:)""",
    re.IGNORECASE | re.MULTILINE,
)


def prepare(source: Path | None, *, into: Path) -> None:
    """Makes `into`, which must not exist, for its owner alone. What cannot be copied whole is refused, by name."""
    found: list[Found] = []
    if source is not None:
        if not source.is_dir():
            raise InputError("spec.missing-file", f"there is no folder {quoted(str(source))}")
        source = source.resolve()
        if into.resolve().is_relative_to(source):
            raise InputError("workspace.inside-itself", f"{quoted(str(into))} lies inside {quoted(str(source))}")
        found = walk(source)
        for item in found:
            refuse_what_reaches_out(source, item)
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        into.mkdir(mode=0o700)
    except OSError as problem:
        raise unwritable(into, problem) from None
    if source is not None:
        try:
            copy_tree(source, found, into=into)
        except BaseException:
            with suppress(OSError):
                remove(into)
            raise


def refuse_what_reaches_out(source: Path, item: Found) -> None:
    """InputError for an item that would lead out of a copy, or cannot be in one."""
    place = quoted(str(source))
    match item.kind:
        case EntryKind.FIFO | EntryKind.SOCKET | EntryKind.DEVICE:
            what = f"{quoted(item.path)} is a {item.kind}, which cannot be copied"
            raise InputError("workspace.special-file", what, file=place)
        case EntryKind.LINK if leads_out(source, item):
            what = f"{quoted(item.path)} is a link to {quoted(item.target or '')}, outside the workspace"
            raise InputError("workspace.link-out", what, file=place)
        case _ if Path(item.path).name == ".git" and (how := _reaches_a_repository(source / item.path)):
            raise InputError("workspace.git", f"{quoted(item.path)} {how}", file=place)


def leads_out(root: Path, link: Found) -> bool:
    """Whether any step of the way leaves the root: a way that leaves and comes back would not do so in a copy."""
    here = link.path.split("/")[:-1]
    way = deque((link.target or "").split("/"))
    if way[0] == "":
        return True
    hops = 0
    while way and hops < _MAX_HOPS:
        step = way.popleft()
        if step == "..":
            if not here:
                return True
            here.pop()
        elif step not in ("", "."):
            try:
                onward = read_link(root.joinpath(*here, step))
            except OSError:
                here.append(step)
                continue
            if onward.startswith("/"):
                return True
            hops += 1
            way.extendleft(reversed(onward.split("/")))
    return False


def _reaches_a_repository(git: Path) -> str | None:
    """From a copied worktree or a clone with borrowed objects an agent could change the user's own repository."""
    if not git.is_dir():
        return "is a file that points at a repository elsewhere (a linked worktree or a submodule)"
    if (git / "commondir").exists():
        return "shares its branches with a repository elsewhere"
    if (git / "objects" / "info" / "alternates").exists():
        return "borrows its objects from a repository elsewhere"
    with suppress(OSError):
        if _ELSEWHERE.search((git / "config").read_bytes()):
            return "has a config that names a folder elsewhere (worktree, hooks, include or a local remote)"
    return None
