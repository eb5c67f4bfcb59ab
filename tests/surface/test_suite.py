"""Suites: a spec's missions on whatever runtimes are asked for, with expectations over result, trace and workspace."""

import json
from pathlib import Path

import msgspec
import pytest

from proctor.campaign.freeze import FrozenFiles
from proctor.campaign.suite import flows_on
from proctor.config.load import load_config
from proctor.errors import InputError
from proctor.ids import FlowId, RuntimeId
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.choices import Isolation
from proctor.spec.load import SpecOverrides
from proctor.spec.model import FlowSpec
from tests.lab import DONE, Lab
from tests.surface.conftest import ask

SUITE = """\
version: 1
campaign: greetings
missions: {folder: missions}
"""
SCRIPT = f"""\
version: 1
steps:
  - run: cat a.txt
  - patch: {{file: a.txt, old: one, new: two}}
  - say: '{DONE % "two"}'
"""
FIX = """\
---
script: say.yaml
workspace: {copy: tree}
tags: [quick]
expect:
  matches: ^two$
  trace: {max_tool_calls: 2, max_failures: 0, tools: [patch], commands: [cat]}
  workspace: {changed: [a.txt], only: ["*.txt"]}
---
Change a.txt.
"""


@pytest.fixture
def suite(lab: Lab) -> Path:
    (lab.folder / "missions").mkdir()
    (lab.folder / "tree").mkdir()
    (lab.folder / "tree" / "a.txt").write_text("one\n")
    (lab.folder / "say.yaml").write_text(SCRIPT)
    (lab.folder / "missions" / "fix.md").write_text(FIX)
    (lab.folder / "missions" / "idle.md").write_text(FIX.replace("max_tool_calls: 2", "max_tool_calls: 0"))
    (lab.folder / "missions" / "other.md").write_text(FIX.replace("[quick]", "[slow]"))
    (lab.folder / "suite.yaml").write_text(SUITE)
    return lab.folder / "suite.yaml"


@pytest.mark.requirement("suite.run", "campaign.matrix")
@pytest.mark.real_agent
def test_a_suite_runs_on_any_chain_and_each_expectation_is_judged(
    lab: Lab, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_CLAUDE", "/nowhere/claude")
    said = ask(lab, "suite", "run", str(suite), "--on", "codex_app_server,clade+codex_exec", "--tag", "quick", "--json")
    assert (said.code, said.json["error"]["code"]) == (2, "spec.unknown-runtime")
    on = "codex_app_server,claude_code+codex_exec"
    said = ask(lab, "suite", "run", str(suite), "--on", on, "--tag", "quick", "--json")
    assert said.code == 1
    chosen = FlowId("claude-code-or-codex-exec")
    assert {
        (row["missionId"], row["flowId"]): (row["summary"]["outcome"], row["summary"]["expectation"]["met"])
        for row in said.json["attempts"]
    } == {
        ("fix", "codex-app-server"): ("completed", True),
        ("fix", chosen): ("completed", True),
        ("idle", "codex-app-server"): ("completed", False),
        ("idle", chosen): ("completed", False),
    }
    lab.assert_all_evidence_is_valid()
    [index] = (lab.root / "campaigns").glob("*/spec.snapshot/index.json")
    assert msgspec.json.decode(index.read_bytes(), type=FrozenFiles).given == SpecOverrides(
        select=SelectSpec(tags=["quick"]),
        flows=[
            FlowSpec(id=FlowId("codex-app-server"), runtime=[RuntimeId("codex_app_server")]),
            FlowSpec(id=chosen, runtime=[RuntimeId("claude_code"), RuntimeId("codex_exec")]),
        ],
    )


def test_a_plan_shows_missions_and_trials_and_runs_nothing(lab: Lab, suite: Path) -> None:
    said = lab.proctor("suite", "plan", str(suite), "--on", "codex_app_server", "--range", "2-3", "--json")
    told = json.loads(said.stdout)
    assert (said.returncode, told["suite"], told["trials"]) == (
        0,
        "greetings",
        ["idle.codex-app-server.r1", "other.codex-app-server.r1"],
    )
    assert told["missions"][1] == {
        "missionId": "other",
        "prompt": "Change a.txt.",
        "tags": ["slow"],
        "workspace": "tree",
        "probes": 0,
        "expect": {
            "matches": "^two$",
            "trace": {"max_tool_calls": 2, "max_failures": 0, "tools": ["patch"], "commands": ["cat"]},
            "workspace": {"changed": ["a.txt"], "only": ["*.txt"]},
        },
    }
    assert not lab.root.exists()
    bare = lab.proctor("suite", "plan", str(suite))
    assert (bare.returncode, "greetings: 3 missions, no runtime selected (see --on)" in bare.stdout) == (0, True)


def test_flows_of_the_file_are_not_used_and_need_not_be_there(lab: Lab, suite: Path) -> None:
    suite.write_text(SUITE + "flows: [{id: mine, runtime: [claude_code]}]\nschedule: {runtimes: {claude_code: 1}}\n")
    told = json.loads(lab.proctor("suite", "plan", str(suite), "--on", "codex_exec", "--json").stdout)
    assert told["flows"] == [{"flowId": "codex-exec", "runtime": ["codex_exec"], "isolation": "shared"}]


def test_a_runtime_that_cannot_share_a_process_gets_one_for_each_attempt(tmp_path: Path) -> None:
    [flow] = flows_on(["replay"], config=load_config(tmp_path))
    assert flow == FlowSpec(id=FlowId("replay"), runtime=[RuntimeId("replay")], isolation=Isolation.PROCESS)


@pytest.mark.parametrize("words", [["codex_exec", "codex_exec"], [""], ["codex_exec+"]])
def test_words_that_make_no_flow_or_the_same_one_twice_are_refused(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(InputError):
        flows_on(words, config=load_config(tmp_path))
