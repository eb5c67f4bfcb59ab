"""The same missions through two runtimes end alike, on the real programs."""

import json
import os
from pathlib import Path

import pytest

from proctor.report.parity import Aspect
from proctor.runtime.codex.program import locate
from tests.lab import Lab

SUITE = Path(__file__).parents[2] / "examples" / "parity" / "suite.yaml"
MISSIONS = {"answer", "shell", "fix", "fails", "refused"}

pytestmark = [pytest.mark.real_agent, pytest.mark.long, pytest.mark.requirement("runtime.parity")]


def explained(lab: Lab, left: str, right: str) -> dict[str, set[str]]:
    """Which aspects of which missions differ; nothing differs that is not explained."""
    lab.is_other_agent_allowed = True
    tools = lab.folder / "tools"
    tools.mkdir()
    (tools / "codex").symlink_to(locate().real_path)
    rows, path = lab.folder / "rows.jsonl", f"{tools}:{os.environ['PATH']}"
    done = lab.proctor("parity", left, right, str(SUITE), "--json", "--progress", str(rows), PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [json.loads(line)["type"] for line in rows.read_text().splitlines()]
    assert (told[0], told.count("attempt.settled"), told[-1]) == ("run.began", 2 * len(MISSIONS), "run.ended")
    pairs = json.loads(done.stdout)["pairs"]
    assert {pair["missionId"] for pair in pairs} == MISSIONS
    assert {len(pair["compared"]) for pair in pairs} == {len(Aspect)}
    lab.assert_all_evidence_is_valid()
    apart = {pair["missionId"]: {each["aspect"] for each in pair["compared"] if not each["isEqual"]} for pair in pairs}
    return {mission: aspects for mission, aspects in apart.items() if aspects}


def test_codex_exec_does_what_the_app_server_does(lab: Lab) -> None:
    assert explained(lab, "native", "codex_exec") == {}


@pytest.mark.agent("claude_code")
def test_claude_code_does_what_codex_does_and_reads_a_file_before_it_changes_it(lab: Lab) -> None:
    assert explained(lab, "native", "claude_code") == {"fix": {Aspect.TOOL_CALLS, Aspect.METRICS}}


def test_an_agent_as_a_command_does_the_same_and_what_cannot_be_seen_of_it_is_told_as_that(lab: Lab) -> None:
    unseen = {Aspect.TOOL_CALLS, Aspect.METRICS}
    assert explained(lab, "native", "command") == {
        "answer": {Aspect.USAGE, Aspect.METRICS},
        "shell": {Aspect.USAGE, *unseen},
        "fix": {Aspect.USAGE, *unseen},
        "fails": {Aspect.USAGE, *unseen},
        "refused": {Aspect.OUTCOME, Aspect.METRICS},
    }
