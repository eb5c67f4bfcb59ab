"""kill -9 of Proctor, the agent or both while a session talks: every completed turn is kept once, and no other."""

from pathlib import Path

import pytest

from chaos.session_player import RUNTIME
from chaos.sessions import EVENTS, SessionSeed
from tests.acceptance.sittings import CLAUDE, CODEX

pytestmark = [pytest.mark.real_agent, pytest.mark.proctor_process, pytest.mark.long]


@pytest.mark.requirement("session.mirror")
@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("half", [0, 1])
def test_session_keeps_each_completed_turn_once_wherever_proctor_is_killed(half: int, tmp_path: Path) -> None:
    seed = SessionSeed(0, tmp_path / "seed", runtime=CODEX)
    points = EVENTS[half::2]
    for number, event in enumerate(points):
        seed.run(seed.sitting(number, dies_at=event, dies_in=number % 2), kind="nothing", at=None)
    played = seed.check()
    assert played.problems == []
    assert played.faults == {f"itself at {event}": 1 for event in points}


@pytest.mark.requirement("session.mirror")
@pytest.mark.parametrize("runtime", ["codex_exec", CLAUDE])
def test_session_of_other_runtime_keeps_each_completed_turn_once(runtime: str, tmp_path: Path) -> None:
    seed = SessionSeed(0, tmp_path / "seed", runtime=runtime)
    points = ("TurnAsked", "ToolBegan", "TurnEnded", "idle")
    for number, event in enumerate(points):
        seed.run(seed.sitting(number, dies_at=event, dies_in=number % 2), kind="nothing", at=None)
    played = seed.check()
    assert played.problems == []
    assert played.faults == {f"itself at {event}": 1 for event in points}


@pytest.mark.requirement("session.mirror")
@pytest.mark.timeout(300)
def test_session_survives_random_kills_of_proctor_agent_and_both(tmp_path: Path) -> None:
    """A slice: `python -m chaos.sessions --seeds 1-20` plays more."""
    played = SessionSeed(5, tmp_path / "seed", runtime=RUNTIME).play()
    assert played.problems == []
    assert {"agent", "both", "proctor"} <= set(played.faults)
