"""Locate program files inside installed wheels without importing them."""

import importlib.util
from pathlib import Path

CODEX_WHEEL = "codex_cli_bin"


def bundled_file(package: str, name: str) -> Path | None:
    """Return the path of a file in an installed package, or None if either does not exist."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0]) / name
    return file if file.is_file() else None


def bundled_bwrap() -> Path | None:
    """Return the static bubblewrap binary in the Codex wheel, or None. It can contain any agent, not only Codex."""
    return bundled_file(CODEX_WHEEL, "codex-resources/bwrap")
