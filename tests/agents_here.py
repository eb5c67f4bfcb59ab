"""Which agents that `make agents` installs are here. Tests of the others are left out, and the last lines say so.

A test that needs one is marked `@pytest.mark.agent("claude_code")`; a module whose tests all do has a `pytestmark`.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

import pytest

LOCKS: Final = Path(__file__).parent.parent / "locks"


def _find_folder() -> Path | None:
    """Return the folder that PROCTOR_AGENTS names, or else the one where `make agents` of this checkout installs."""
    if (named := os.environ.get("PROCTOR_AGENTS")) is not None:
        return Path(named) if named else None
    content = b"".join(
        (LOCKS / each).read_bytes() for each in ("agents.lock", "pi/package.json", "pi/package-lock.json")
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "proctor" / "agents" / hashlib.sha256(content).hexdigest()[:16]
    return folder if folder.is_dir() else None


# Looked for before any fixture takes Proctor's own variables away.
FOLDER: Final = _find_folder()

PROGRAMS: Final = {"claude_code": "python/claude_agent_sdk/_bundled/claude"}
"""Where each agent's program lies in that folder."""


def missing() -> list[str]:
    return [agent for agent, path in PROGRAMS.items() if FOLDER is None or not (FOLDER / path).exists()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    absent = set(missing())
    left_out = [item for item in items if any(mark.args[0] in absent for mark in item.iter_markers("agent"))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if absent := missing():
        terminalreporter.write_line(f"not tested, because not installed: {', '.join(absent)} (`make agents` does that)")
