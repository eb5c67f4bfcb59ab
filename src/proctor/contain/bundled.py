"""Programs that lie inside an installed wheel, found without importing it."""

import importlib.util
from pathlib import Path

CODEX_WHEEL = "codex_cli_bin"


def bundled_file(package: str, name: str) -> Path | None:
    """A file of an installed package, or None where there is none."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0]) / name
    return file if file.is_file() else None


def bundled_bwrap() -> Path | None:
    """The static bubblewrap that the Codex wheel carries: it holds any agent, not Codex alone."""
    return bundled_file(CODEX_WHEEL, "codex-resources/bwrap")
