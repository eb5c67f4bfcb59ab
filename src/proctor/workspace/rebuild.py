"""Rebuild the workspace that an agent left, from the untouched workspace and the text of workspace.diff."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from proctor.errors import InputError
from proctor.workspace.changed import FILE_HEADER
from proctor.workspace.copy import unwritable
from proctor.workspace.name import unquoted
from proctor.workspace.patch import apply_patch

_FOLDER: Final = re.compile(r"# (removed|new) folder (.+) \(empty\)")
_SPECIAL: Final = re.compile(r"# (?:removed|new) ([a-z]+) (.+)")
_BINARY: Final = re.compile(r"Binary files (.+) and (.+) differ")
_SHOWN_CHARS: Final = 200


class RebuildError(Exception):
    """The tree cannot be rebuilt. The message says why."""


def find_obstacle(diff: str) -> str | None:
    r"""Return why a tree cannot be rebuilt from the text of a workspace.diff; None if nothing in it says so.

    >>> find_obstacle("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-# cut: a\n+Binary files a and b differ\n")
    >>> find_obstacle("# cut: 3 changed paths left out, from x on\n")
    'workspace.diff was truncated: 3 changed paths left out, from x on'
    >>> find_obstacle("Binary files /dev/null and b/logo.png differ\n# b/logo.png: 9 bytes, sha256:0, not text\n")
    'workspace.diff does not have the content of b/logo.png: 9 bytes, sha256:0, not text'
    >>> find_obstacle("# new fifo pipe\n")
    'workspace.diff cannot express the fifo pipe'
    >>> find_obstacle("# git: new refs/heads/b at 2\n")
    'the repository in .git was changed: new refs/heads/b at 2'
    """
    # Lines of file content begin with a space, a plus or a minus, so they never match.
    lines = diff.split("\n")
    for at, line in enumerate(lines):
        if line.startswith("# cut: "):
            return f"workspace.diff was truncated: {line.removeprefix('# cut: ')}"
        if line.startswith("# git: "):
            return f"the repository in .git was changed: {line.removeprefix('# git: ')[:_SHOWN_CHARS]}"
        if _BINARY.fullmatch(line):
            described = [each[2:] for each in lines[at + 1 : at + 3] if each.startswith("# ")]
            what = described[-1] if described else line
            return f"workspace.diff does not have the content of {what[:_SHOWN_CHARS]}"
        if not _FOLDER.fullmatch(line) and (special := _SPECIAL.fullmatch(line)):
            return f"workspace.diff cannot express the {special[1]} {special[2][:_SHOWN_CHARS]}"
    return None


def rebuild(diff: str, *, tree: Path, layer: Path) -> None:
    """Apply the text of a workspace.diff to `tree`, a copy of the untouched workspace. `layer` is an empty folder.

    Raises RebuildError if that is not possible, and MachineError if the disk refuses. The caller compares the digest.
    """
    if (obstacle := find_obstacle(diff)) is not None:
        raise RebuildError(obstacle)
    folders = [match.groups() for line in diff.split("\n") if (match := _FOLDER.fullmatch(line))]
    try:
        # A folder that held only removed ones is gone too, unless the diff lists it as new.
        for _, path in (each for each in reversed(folders) if each[0] == "removed"):
            with suppress(OSError):
                for place in (Path(unquoted(path)), *Path(unquoted(path)).parents[:-1]):
                    (tree / place).rmdir()
        if any(line.startswith(FILE_HEADER) for line in diff.split("\n")):
            apply_patch(diff.encode(), tree=tree, layer=layer)
        for _, path in (each for each in folders if each[0] == "new"):
            (tree / unquoted(path)).mkdir(parents=True, exist_ok=True)
    except InputError as error:
        raise RebuildError(f"workspace.diff does not apply: {error.what}") from error
    except OSError as problem:
        raise unwritable(tree, problem) from problem
