"""Keep a spec out of commits: agents work on clones, and must not see how they are judged."""

import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from proctor.errors import MachineError
from proctor.workspace.git import GitRefusedError, git

_LITERAL = {"GIT_LITERAL_PATHSPECS": "1"}


def exclude(folder: Path, names: Sequence[str]) -> None:
    """Add names in `folder` to the repository's `.git/info/exclude`. Outside of a repository, do nothing."""
    with suppress(GitRefusedError, MachineError):
        words = ("rev-parse", "--show-prefix", "--git-path", "info/exclude")
        prefix, path = os.fsdecode(git(*words, cwd=folder)).removesuffix("\n").split("\n")
        _add_lines(folder / path, [f"/{_as_pattern(prefix)}{name}" for name in names])


def _add_lines(file: Path, lines: Sequence[str]) -> None:
    text = os.fsdecode(file.read_bytes()) if file.exists() else ""
    existing = text.splitlines()
    if missing := [line for line in lines if line not in existing]:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(os.fsencode("\n".join([*existing, *missing, ""])))


def _as_pattern(path: str) -> str:
    r"""Escape a path for a gitignore pattern.

    >>> print(_as_pattern("a[1]/b*/"))
    a\[1]/b\*/
    """
    return re.sub(r"([\\*?\[])", r"\\\1", path)


def to_do_first(folder: Path, names: Sequence[str]) -> str | None:
    """Return what the user must do before agents may work on clones, if git tracks one of these files; else None."""
    with suppress(GitRefusedError, MachineError):
        tracked = os.fsdecode(git("ls-files", "-z", "--", *names, cwd=folder, env=_LITERAL)).split("\0")[:-1]
        if _is_in_history(folder, names):
            what = f"the history of HEAD contains {names[0]} or its scripts, which agents must not see"
            advice = f"Move {' and '.join(names)} out of the repository, and point the spec to it:"
            return f"{what}. {advice} `workspace: {{git: {folder.resolve()}, ref: HEAD}}`."
        if tracked:
            return f"git tracks files that agents must not see. Run `git rm --cached {shlex.join(tracked)}`."
    return None


def _is_in_history(folder: Path, names: Sequence[str]) -> bool:
    with suppress(GitRefusedError):  # no commit yet
        words = ("rev-list", "--full-history", "--max-count=1", "HEAD", "--", *names)
        return bool(git(*words, cwd=folder, env=_LITERAL))
    return False
