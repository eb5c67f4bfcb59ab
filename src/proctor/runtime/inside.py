"""Whether a change stays inside the workspace, with every link on the way followed."""

import os
from collections.abc import Sequence
from pathlib import Path

# What is written there is run or believed later, outside of any sandbox; Codex keeps its own from them too.
PROTECTED = frozenset({".git", ".codex", ".agents", ".claude", ".pi"})


def stays_inside(workspace: Path, paths: Sequence[str]) -> bool:
    """True where all of them surely do; of no paths at all nothing is known.

    It holds for the moment of asking: a process of the agent's that may write there can exchange a link afterwards.
    """
    root = Path(os.path.realpath(workspace))
    return bool(paths) and all(_is_below(root, path) for path in paths)


def _is_below(root: Path, path: str) -> bool:
    try:
        real = Path(os.path.realpath(root / path))
        # A file with a second name may have it elsewhere.
        is_shared = real.is_file() and real.stat().st_nlink > 1
    except (OSError, ValueError):
        return False
    return (
        real != root and real.is_relative_to(root) and not PROTECTED & {*real.relative_to(root).parts} and not is_shared
    )
