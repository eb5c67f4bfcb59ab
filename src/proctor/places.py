"""The folders of the current user that Proctor uses: cache, state and config."""

import os
import tempfile
from pathlib import Path

from proctor.errors import disk_error


def cache_dir() -> Path:
    """Return the folder for agent homes, workspaces and cached identities. Creates it with mode 0700."""
    return _private("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """Return the folder for spawn intents, proofs and what sessions and trials keep. Creates it with mode 0700."""
    return _private("XDG_STATE_HOME", ".local/state")


def spawns_dir() -> Path:
    """Return the folder below which each running Proctor has its spawn intents. It may not exist."""
    return state_dir() / "spawns"


def sessions_dir() -> Path:
    """Return the folder below which each session keeps its agents' homes and its workspace. It may not exist."""
    return state_dir() / "sessions"


def trials_dir() -> Path:
    """Return the folder below which campaigns keep trials that may be continued. It may not exist."""
    return state_dir() / "trials"


def config_file() -> Path:
    """Return the path of the user's config file, which may not exist."""
    return _folder("XDG_CONFIG_HOME", ".config") / "config.toml"


def write_private(path: Path, data: bytes, *, drafts: Path | None = None) -> None:
    """Replace a file atomically, with mode 0600 whatever the umask. Raises OSError.

    The draft is written next to it, or in the folder `drafts` of the same file system.
    """
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=drafts or path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(data)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _folder(variable: str, default: str) -> Path:
    base = os.environ.get(variable)
    # The XDG specification says to ignore a relative path in an XDG variable.
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / default) / "proctor"


def _private(variable: str, default: str) -> Path:
    folder = _folder(variable, default)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, path=folder) from error
    return folder
