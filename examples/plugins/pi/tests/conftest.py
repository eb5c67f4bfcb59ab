"""Fixtures of the plugin's tests: separate cache and state folders, and the real pi if it is installed."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from proctor.errors import MachineError
from proctor.runtime.base import Executable
from proctor_pi import RUNTIME

# Read before any other conftest unsets Proctor's variables.
AGENTS: Final = os.environ.get("PROCTOR_AGENTS", "")
HERE: Final = Path(__file__).parent


def _program() -> Executable | None:
    """Return the pinned pi, and never another one on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROCTOR_AGENTS", AGENTS)
        try:
            found = RUNTIME.locate({})
        except MachineError:
            return None
    return found if found is not None and AGENTS and found.path.startswith(AGENTS) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    if "program" in getattr(item, "fixturenames", ()):
        item.add_marker("real_agent")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that need pi if it is not installed."""
    if _program() is not None:
        return
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    needing = [item for item in ours if "program" in getattr(item, "fixturenames", ())]
    if needing:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _program() is None:
        terminalreporter.write_line("not tested, because not installed: pi (`make agents` does that)")


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests away from the user's own cache and state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("PROCTOR_AGENTS", AGENTS)
        yield


@pytest.fixture
def program() -> Executable:
    found = _program()
    assert found is not None, "this test should have been left out"
    return found
