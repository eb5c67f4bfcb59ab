"""`proctor attempt`: list, show, explain."""

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.evidence.summary import AttemptSummary
from tests.lab import Lab, mission, say_done
from tests.surface.conftest import Quickstart, ask
from tests.workspace.repositories import commit, git

pytestmark = pytest.mark.real_agent

KEYS = (
    "attemptId runId campaignId trial missionId flowId repeat n isSuperseded runtimeId state code bucket retryable "
    "todo detail summary tokens usd dir evidence findings"
).split()


def test_a_listing_is_one_array_of_rows_with_every_key(quickstart: Quickstart) -> None:
    said = quickstart.lab.proctor("attempt", "list", "--json")
    listing = json.loads(said.stdout)
    assert (said.returncode, said.stderr, list(listing)) == (0, "", ["attempts"])
    assert [list(row) for row in listing["attempts"]] == [KEYS] * 4
    [fix] = [row for row in listing["attempts"] if row["missionId"] == "fix"]
    assert {key: fix[key] for key in KEYS if key not in ("runId", "campaignId", "tokens", "summary")} == {
        "attemptId": "fix.codex.r1.1",
        "trial": "fix.codex.r1",
        "missionId": "fix",
        "flowId": "codex",
        "repeat": 1,
        "n": 1,
        "isSuperseded": False,
        "runtimeId": "codex_app_server",
        "state": "sealed",
        "code": None,
        "bucket": None,
        "retryable": None,
        "todo": None,
        "detail": None,
        "usd": 0.0,
        "dir": str(quickstart.folder("fix")),
        "evidence": "unchecked",
        "findings": [],
    }
    summary = fix["summary"]
    assert list(summary) == [field.encode_name for field in msgspec.structs.fields(AttemptSummary)]
    ending = {"outcome": "completed", "code": None, "claimed": True, "verified": True, "toolCalls": 2}
    assert ending.items() <= summary.items()
    assert summary["expectation"] == {"met": True, "keys": {"verified": True, "outcome": True}, "unmet": []}
    assert summary["tokens"]["total"] == fix["tokens"]


def test_show_gives_every_artifact_as_it_stands(quickstart: Quickstart) -> None:
    folder = quickstart.folder("fix")
    shown = ask(quickstart.lab, "attempt", "show", "fix", "--json").json
    files = {
        "attempt": "attempt.json",
        "runnerRef": "runner.ref.json",
        "feedback": "feedback.json",
        "report": "attempt.report.json",
        "seal": "seal.json",
    }
    assert {key: shown[key] for key in files} == {
        key: json.loads((folder / name).read_text()) for key, name in files.items()
    }
    assert shown["workspaceDiff"] == (folder / "workspace.diff").read_text()
    assert [call["name"] for call in shown["toolCalls"]] == ["shell", "patch"]
    assert shown["findings"] == []
    assert "tool.calls.jsonl\n{" in ask(quickstart.lab, "attempt", "show", "fix").stdout


@pytest.mark.requirement("evidence.claimed-vs-verified")
def test_explain_shows_prompt_actions_claim_and_verification(quickstart: Quickstart) -> None:
    said = ask(quickstart.lab, "attempt", "explain", "claim")
    sections = {part.split("\n", 1)[0].split("   ")[0]: part for part in said.stdout.split("\n\n")[1:]}
    titles = "Prompt,Actions,Changes,Last message,Claimed,Verified,Expected,Evidence,Transcript,Next".split(",")
    assert list(sections) == [*titles, "Run the probe again"]
    assert "greet.py should greet Ada by name" in sections["Prompt"]
    assert "1  shell  cat greet.py  exit 0" in sections["Actions"]
    assert sections["Changes"] == "Changes\n  none"
    assert sections["Last message"] == "Last message\n  I have fixed greet.py; it now greets Ada."
    assert "done  (frame" in sections["Claimed"]
    assert "NO: `python3 greet.py`: exited 0 and printed 'Hello, world\\n'" in sections["Verified"]
    assert "`python3 greet.py`  before fail  after fail\n    Hello, world" in sections["Verified"]
    assert sections["Expected"] == "Expected\n  as expected: every key of `expect` is met"
    assert sections["Transcript"].startswith("Transcript   last 8 of ")
    assert "(numbers are frames)\n" in sections["Transcript"]
    assert " (pinned program); sandbox workspace-write; isolation shared\n" in said.stdout
    assert "complete: all 10 sealed files are unchanged" in sections["Evidence"]
    asked = ask(quickstart.lab, "attempt", "explain", "ask").stdout
    assert asked.endswith("Next\n  Nothing to do: the result is as expected and the evidence is complete.\n")
    story = ask(quickstart.lab, "attempt", "explain", "fix", "--json").json
    assert (story["claimed"], story["verified"], story["evidence"], story["isLocked"]) == (True, True, "valid", True)
    assert story["changes"] == [{"file": "greet.py", "added": 1, "removed": 1, "isGenerated": False}]
    [probe] = story["probes"]
    assert probe.pop("runAgain").endswith("workspace.diff && python3 greet.py)")
    verdicts: dict[str, Any] = {
        "before": "fail",
        "mutant": None,
        "after": "pass",
        "judged": "outside",
        "failure": None,
        "files": [],
    }
    kind = {"kind": "headless_run", "role": "goal", "criterion": "probe 1 (headless_run)"}
    told = {"command": "python3 greet.py", "workspaceProblem": None}
    assert probe == {"index": 0, "argv": ["python3", "greet.py"], **kind, **told, **verdicts}


def failed_attempt(lab: Lab, workspace: dict[str, Any]) -> Any:
    """Run an agent that writes a file and fails its probe, and return the probe of its explanation."""
    lab.is_other_agent_allowed = True
    flow = {"runtime": ["process"], "options": {"process": {"command": "echo bad >out.txt"}}}
    command = "test -e kept.txt && ! test -e 'a, b' && cat out.txt && exit 3"
    probes = [{"kind": "headless_run", "command": command}]
    lab.proctor("run", str(lab.write_spec([mission("m", say_done(), probes=probes, workspace=workspace)], flow=flow)))
    return explained_probe(lab)


def explained_probe(lab: Lab) -> Any:
    [probe] = json.loads(lab.proctor("attempt", "explain", "m.codex.r1.1", "--json").stdout)["probes"]
    return probe


def test_command_that_runs_a_probe_again_leaves_out_what_the_workspace_excludes(lab: Lab) -> None:
    folder = lab.workspace("start", {"kept.txt": "", "a, b": "", "c": ""})
    probe = failed_attempt(lab, {"copy": folder, "exclude": ["a, b", "c"]})
    again = subprocess.run(["bash", "-c", probe["runAgain"]], capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (3, "bad\n"), again.stderr
    (lab.folder / "spec" / folder / "kept.txt").write_text("other")
    assert (changed := explained_probe(lab))["runAgain"] is None
    assert changed["workspaceProblem"].endswith("start has changed since the campaign began")
    assert "no complete command: " in lab.proctor("attempt", "explain", "m.codex.r1.1").stdout


def test_command_that_runs_a_probe_again_takes_the_commit_of_the_campaign(lab: Lab, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git("init", "-q", cwd=repository)
    first = commit(repository, {"kept.txt": "one"}, "first")
    probe = failed_attempt(lab, {"git": str(repository), "ref": "HEAD"})
    assert f"git checkout -q {first}" in probe["runAgain"]
    again = subprocess.run(["bash", "-c", probe["runAgain"]], capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (3, "bad\n"), again.stderr
    commit(repository, {"kept.txt": "two"}, "second")
    assert (moved := explained_probe(lab))["runAgain"] is None
    assert moved["workspaceProblem"] == f"HEAD of {repository} has changed since the campaign began"
