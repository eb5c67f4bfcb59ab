"""Find the file in which Codex stores a thread."""

import re
from pathlib import Path
from typing import Final

from proctor.ids import ThreadId

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_id(thread: ThreadId) -> bool:
    """Return whether it is a Codex thread id, which is safe on a command line and in a file name pattern.

    >>> is_id(ThreadId("01a1e25f-d177-7d92-b886-5d5369682cdf")), is_id(ThreadId("--last"))
    (True, False)
    """
    return _ID.fullmatch(thread) is not None


def find_rollout(home: Path, thread: ThreadId) -> Path | None:
    """Return Codex's rollout file of a thread, or None if it does not exist."""
    if not is_id(thread):
        return None
    return next(iter((home / "sessions").glob(f"*/*/*/rollout-*-{thread}.jsonl")), None)
