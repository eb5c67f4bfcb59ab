"""Stages: a command does what a scripted model would have made an agent do, and a replay what Codex did."""

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.evidence.artifacts import AttemptRecord, RunnerRef
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import read_artifact
from proctor.ids import RuntimeId
from proctor.testing.conformance import NotApplicableError
from proctor.testing.conformance.stage import HEARD, STAGES, spelled
from tests.locked import locked_codex_sha256

PROMPT = "Say 'it', \"it\" and $it.\n"


def test_steps_are_done_in_order_and_the_prompt_is_kept(tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"run": "echo out; touch made; false"},
        {"do": [{"say": "it's $HOME"}, {"delay": "0s"}, {"say": {"text": "ab ", "repeat": 2, "chunk_chars": 1}}]},
    ]
    command = spelled(steps)
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, input=PROMPT, text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "it's $HOME\nab ab \n", "")
    assert {file.name for file in tmp_path.iterdir()} == {HEARD, "made"}
    assert (tmp_path / HEARD).read_text() == PROMPT


@pytest.mark.parametrize("step", [{"call": {"tool": "t"}}, {"run": {"command": "true", "escalate": True}}])
def test_what_a_command_cannot_be_made_to_do_is_not_applicable(step: dict[str, Any]) -> None:
    with pytest.raises(NotApplicableError):
        spelled([step])


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.conformance")
def test_what_is_replayed_was_done_just_before_by_the_real_codex(tmp_path: Path) -> None:
    stage = STAGES[RuntimeId("replay")]
    steps = [{"do": [{"say": "I begin."}, {"delay": "10m"}]}]
    options = anyio.run(partial(stage.options, steps, prompt="Say 4711.", folder=tmp_path))
    recorded = AttemptPaths(Path(options["attempt"]))
    assert read_artifact(recorded.attempt, AttemptRecord).runtime_id == "codex_app_server"
    identity = read_artifact(recorded.runner_ref, RunnerRef).facts["identity"].value
    assert identity["sha256"] == locked_codex_sha256()
    assert any("Say 4711." in text for text in stage.heard(tmp_path))


def test_what_is_on_record_cannot_be_made_to_fall_silent(tmp_path: Path) -> None:
    with pytest.raises(NotApplicableError):
        anyio.run(partial(STAGES[RuntimeId("replay")].options, [{"fault": "hang"}], prompt="", folder=tmp_path))
