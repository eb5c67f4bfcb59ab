"""A script spelled as shell: a command does what a scripted model would have made an agent do."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from proctor.ids import StrategyId
from proctor.testing.conformance import NotApplicableError
from proctor.testing.conformance.stage import HEARD, STAGES, CommandStage

PROMPT = "Say 'it', \"it\" and $it.\n"


def test_steps_are_done_in_order_and_the_prompt_is_kept(tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"run": "echo out; touch made; false"},
        {"do": [{"say": "it's $HOME"}, {"delay": "0s"}, {"say": {"text": "ab ", "repeat": 2, "chunk_chars": 1}}]},
    ]
    command = CommandStage().options(steps)["command"]
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, input=PROMPT, text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "it's $HOME\nab ab \n", "")
    assert {file.name for file in tmp_path.iterdir()} == {HEARD, "made"}
    assert (tmp_path / HEARD).read_text() == PROMPT


@pytest.mark.parametrize("step", [{"call": {"tool": "t"}}, {"run": {"command": "true", "escalate": True}}])
def test_what_a_command_cannot_be_made_to_do_is_not_applicable(step: dict[str, Any]) -> None:
    with pytest.raises(NotApplicableError):
        CommandStage().options([step])


def test_a_replay_cannot_be_told_anything() -> None:
    stage = STAGES[StrategyId("replay")]
    assert stage.options([]) == {}
    with pytest.raises(NotApplicableError):
        stage.options([{"say": "Hello."}])
