"""Which agents that `make agents` installs are here. Tests of the others are left out, and the last lines say so.

A test that needs one is marked `@pytest.mark.agent("claude_code")`; a module whose tests all do has a `pytestmark`.
"""

import os
from pathlib import Path
from typing import Final

import pytest

# Read before any fixture takes Proctor's own variables away.
FOLDER: Final = Path(os.environ["PROCTOR_AGENTS"]) if os.environ.get("PROCTOR_AGENTS") else None

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
