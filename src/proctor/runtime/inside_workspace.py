"""Check that a change stays inside the workspace after all symbolic links are resolved."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

# Files in these folders are executed or trusted later, outside any sandbox. Codex protects them too.
PROTECTED = frozenset({".git", ".codex", ".agents", ".claude"})


def stays_inside(workspace: Path, paths: Sequence[str], *, protected: Collection[str] = ()) -> bool:
    """Return whether all paths are certainly inside the workspace. False if there are no paths.

    `protected` names further folders that a change must not touch, such as the one of the agent's own settings.
    The result holds only at the time of the call: a process that may write there can replace a link afterwards.
    """
    root = Path(os.path.realpath(workspace))
    return bool(paths) and all(_is_below(root, path, PROTECTED.union(protected)) for path in paths)


def _is_below(root: Path, path: str, protected: frozenset[str]) -> bool:
    try:
        real = Path(os.path.realpath(root / path))
        # Another hard link of the file may be outside the workspace.
        is_shared = real.is_file() and real.stat().st_nlink > 1
    except (OSError, ValueError):
        return False
    return (
        real != root and real.is_relative_to(root) and not protected & {*real.relative_to(root).parts} and not is_shared
    )
