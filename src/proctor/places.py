"""The user's own folders: scratch and homes in the cache, spawn intents in the state, settings in the config."""

import os
from pathlib import Path

from proctor.errors import disk_refusal


def cache_dir() -> Path:
    """Where agent homes, workspaces and cached identities live, 0700."""
    return _private("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """Where spawn intents live, 0700."""
    return _private("XDG_STATE_HOME", ".local/state")


def config_file() -> Path:
    """The user's own settings, whether there are any or not: nothing is made."""
    return _folder("XDG_CONFIG_HOME", ".config") / "config.toml"


def _folder(variable: str, default: str) -> Path:
    base = os.environ.get(variable)
    # A relative path in an XDG variable is to be ignored, says its specification.
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / default) / "proctor"


def _private(variable: str, default: str) -> Path:
    folder = _folder(variable, default)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise disk_refusal(error, path=folder) from error
    return folder
