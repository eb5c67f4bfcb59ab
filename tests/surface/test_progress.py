"""What a terminal shows while a campaign runs."""

import io

import pytest
from rich.console import Console

from proctor.attempt.machine import State
from proctor.event.model import ToolBegan, TurnBegan
from proctor.ids import AttemptId, CallId, TurnId
from proctor.surface.cli.progress import LiveProgress
from tests.event.streams import total

FIX, ASK = AttemptId("fix.codex.r1.1"), AttemptId("ask.codex.r1.1")


def drawn(progress: LiveProgress) -> list[str]:
    written = io.StringIO()
    Console(file=written, width=100).print(progress)
    return written.getvalue().splitlines()


@pytest.mark.requirement("surface.progress")
def test_each_running_attempt_has_a_line_with_phase_tool_tokens_and_age() -> None:
    progress = LiveProgress(Console(file=io.StringIO()), "quickstart", cells=2)
    for attempt in (FIX, ASK):
        progress.entered(attempt, State.PREPARING)
    progress.entered(FIX, State.TURN_RUNNING)
    command = {"command": "/bin/bash -lc 'cat greet.py\x1b[2J'"}
    progress.saw(
        FIX,
        ToolBegan(frame=1, at_ms=1, turn=TurnId("t"), call=CallId("c"), kind="command", name="shell", input=command),
    )
    first = drawn(progress)
    assert first[0].startswith("quickstart  0 of 2 done  ")
    assert first[1].split()[:6] == ["fix.codex.r1.1", "working", "shell:", "cat", "greet.py\\x1b[2J", "?"]
    assert first[1].rstrip().endswith("ms ago")
    assert first[2].split()[:2] == ["ask.codex.r1.1", "preparing"]
    progress.saw(FIX, TurnBegan(frame=2, at_ms=2, turn=TurnId("t")))
    progress.saw(FIX, total(1785, frame=3))
    progress.entered(ASK, State.SEALED)
    second = drawn(progress)
    assert second[0].startswith("quickstart  1 of 2 done  ")
    assert "1,785 tokens" in second[1]
    assert len(second) == 2
