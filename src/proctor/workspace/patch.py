"""Apply a patch to a tree without changing the tree: only the files that the patch changes are written elsewhere."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import InputError
from proctor.workspace.copy import copy_tree
from proctor.workspace.git import GitRefusedError, git
from proctor.workspace.walk import EntryKind, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchLayer:
    """What a patch changes in a tree."""

    folder: Path
    """The files that the patch changes or adds, as they are afterwards."""
    removed: tuple[str, ...]
    """Paths of the tree that the patch removes."""


def lay_patch(patch: bytes, *, base: Path, into: Path) -> PatchLayer:
    """Apply a patch to the tree `base`, which stays as it is, and write the changed files to the empty folder `into`.

    Raises InputError if the patch does not apply, changes nothing, or names a path outside the tree.
    """
    # Otherwise git looks for a repository in the folders above, and applies the patch relative to that one.
    env = {"GIT_CEILING_DIRECTORIES": str(into.parent)}
    try:
        # Of a renamed file, each direction names one path.
        changed = {
            path
            for direction in ((), ("--reverse",))
            for path in _parse_numstat(git("apply", "--numstat", "-z", *direction, "-", cwd=into, env=env, stdin=patch))
        }
        entries = [item for item in walk(base) if item.kind is EntryKind.FILE and item.path in changed]
        for path in sorted({str(Path(item.path).parent) for item in entries} - {"."}):
            (into / path).mkdir(mode=0o755, parents=True, exist_ok=True)
        copy_tree(base, entries, into=into)
        git("apply", "-", cwd=into, env=env, stdin=patch)
    except GitRefusedError as error:
        raise InputError("workspace.patch", str(error)) from error
    if not changed:
        raise InputError("workspace.patch", "it changes no file")
    return PatchLayer(
        folder=into, removed=tuple(item.path for item in entries if not os.path.lexists(into / item.path))
    )


def _parse_numstat(output: bytes) -> Iterator[str]:
    r"""Yield the paths in the output of `git apply --numstat -z`.

    >>> list(_parse_numstat(b"1\t1\ta b.py\x00-\t-\timage.png\x00"))
    ['a b.py', 'image.png']
    """
    for part in output.decode("utf-8", "surrogateescape").split("\0"):
        path = part.split("\t", 2)[-1]
        if path:
            yield path
