"""What a context engine gives to the real Codex."""

from pathlib import Path

import pytest

from tests.acceptance.context_cases import ContextCases
from tests.acceptance.sittings import SessionLab
from tests.scripted_engine import Behaviour, offer_engine

pytestmark = [pytest.mark.real_agent, pytest.mark.long, pytest.mark.agent("claude_code")]


@pytest.fixture
def lab(tmp_path: Path) -> SessionLab:
    return SessionLab(tmp_path)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    return offer_engine(tmp_path, monkeypatch)


class TestCodex(ContextCases):
    runtime = "codex_app_server"
    other = "claude_code"
