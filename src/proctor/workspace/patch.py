"""Apply a patch to a tree: to the tree itself, or so that only the files that it changes are written elsewhere."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.errors import InputError
from proctor.workspace.copy import copy_tree, unwritable
from proctor.workspace.git import GitRefusedError, git
from proctor.workspace.name import quoted
from proctor.workspace.walk import EntryKind, walk

_APPLIED: Final = (EntryKind.FILE, EntryKind.LINK)


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
        entries = [item for item in walk(base) if item.kind in _APPLIED and item.path in changed]
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


def apply_patch(patch: bytes, *, tree: Path, layer: Path) -> None:
    """Apply a patch to the folder `tree` itself. The changed files are first written to the empty folder `layer`.

    A `.git` in the tree, with its settings, is not used. As with git, a folder that the patch empties is removed.
    Raises InputError as `lay_patch` does, and MachineError if the tree cannot be written.
    """
    laid = lay_patch(patch, base=tree, into=layer)
    try:
        for path in laid.removed:
            (tree / path).unlink()
            for folder in Path(path).parents[:-1]:
                with suppress(OSError):  # not empty
                    (tree / folder).rmdir()
        for item in walk(layer):
            place = tree / item.path
            if item.kind is EntryKind.DIR:
                if place.is_symlink():
                    raise InputError("workspace.patch", f"{quoted(item.path)} is a link, not a folder")
                place.mkdir(mode=0o755, exist_ok=True)
            else:
                place.unlink(missing_ok=True)
                shutil.copy2(layer / item.path, place, follow_symlinks=False)
    except (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError) as problem:
        what = f"it does not fit the tree: {problem.strerror}"
        raise InputError("workspace.patch", what, file=quoted(str(problem.filename))) from problem
    except OSError as problem:
        raise unwritable(tree, problem) from problem


def _parse_numstat(output: bytes) -> Iterator[str]:
    r"""Yield the paths in the output of `git apply --numstat -z`.

    >>> list(_parse_numstat(b"1\t1\ta b.py\x00-\t-\timage.png\x00"))
    ['a b.py', 'image.png']
    """
    for part in output.decode("utf-8", "surrogateescape").split("\0"):
        path = part.split("\t", 2)[-1]
        if path:
            yield path
