"""What all tests share: folders of their own, and a laboratory that runs real campaigns on the real agent."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import agents_here
from tests.agents_here import pytest_collection_modifyitems, pytest_terminal_summary  # noqa: F401  hooks of pytest's
from tests.lab import Lab
from tests.locked import locked_codex_sha256

# No time is asserted anywhere: this may be a busy machine.
settings.register_profile("proctor", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `make test-fast` selects this one with --hypothesis-profile; a test that sets `max_examples` keeps its own number.
settings.register_profile("fast", settings.get_profile("proctor"), max_examples=20)
settings.load_profile("proctor")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-recordings", action="store_true", help="write tests/acceptance/no_engine/ again")


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's own cache, state, config or evidence."""
    # One cache for the session: hashing the agent's program takes half a second, once.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        for name in [name for name in os.environ if name.startswith("PROCTOR_")]:
            patch.delenv(name)
        if agents_here.FOLDER is not None:
            patch.setenv("PROCTOR_AGENTS", str(agents_here.FOLDER))
        yield


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Every attempt made in it must have run on the locked program, unless the test says otherwise."""
    laboratory = Lab(tmp_path)
    yield laboratory
    if not laboratory.is_other_agent_allowed:
        assert laboratory.agents_used() <= {locked_codex_sha256()}, (
            "an attempt ran on another program than the locked one"
        )
