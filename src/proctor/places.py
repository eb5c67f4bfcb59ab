"""The user's own folders: scratch and homes in the cache, spawn intents in the state; never the evidence root."""

import os
from pathlib import Path

from proctor.errors import disk_refusal


def cache_dir() -> Path:
    """Where agent homes, workspaces and cached identities live, 0700."""
    return _private("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """Where spawn intents live, 0700."""
    return _private("XDG_STATE_HOME", ".local/state")


def _private(variable: str, default: str) -> Path:
    base = os.environ.get(variable)
    # A relative path in an XDG variable is to be ignored, says its specification.
    home = Path(base) if base and Path(base).is_absolute() else Path.home() / default
    folder = home / "proctor"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise disk_refusal(error, path=folder) from error
    return folder
