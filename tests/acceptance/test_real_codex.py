"""The real Codex app-server, from YAML to sealed evidence: commands run, patches land, claims are checked."""

import os
from pathlib import Path

import pytest

from proctor.contain.bundled import bundled_bwrap
from proctor.contain.ladder import FORCE_VARIABLE
from proctor.event.model import Tokens
from tests.lab import Lab, jsonl, mission, report_of, runner_ref_of, say_done
from tests.locked import locked_codex_sha256

pytestmark = pytest.mark.real_agent

GREET = "name = 'Bob'\nprint(f'Hello, {name}')\n"
PROBE = {"kind": "headless_run", "command": ["python3", "greet.py"], "stdout": "Hello, Ada\n"}


@pytest.mark.requirement("runtime.codex-app-server")
@pytest.mark.requirement("evidence.transcript")
@pytest.mark.requirement("evidence.trace")
@pytest.mark.requirement("evidence.layout")
@pytest.mark.requirement("runtime.identity")
@pytest.mark.requirement("runtime.usage")
@pytest.mark.parametrize("way", ["bwrap", "bundled-bwrap", "unshare"])
def test_a_command_and_a_patch_really_happen_however_the_agent_is_contained(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv(FORCE_VARIABLE, way)
    if way == "bwrap":
        bwrap = bundled_bwrap()
        assert bwrap is not None
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "bwrap").symlink_to(bwrap)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    usage = {"input": 100, "cached": 40, "output": 20, "reasoning": 5}
    work = mission(
        "fix",
        {"run": "cat greet.py; echo seen > note.txt", "usage": usage},
        {"patch": {"file": "greet.py", "old": "name = 'Bob'", "new": "name = 'Ada'"}, "usage": usage},
        {**say_done("fixed"), "usage": usage},
        workspace={"copy": lab.workspace("greeting", {"greet.py": GREET})},
        probes=[PROBE],
        expect={"verified": "yes", "outcome": "completed", "answer": "fixed"},
    )
    lab.run(lab.write_spec([work]))

    [paths] = lab.attempts().values()
    report, ref = report_of(paths), runner_ref_of(paths)
    assert (report.outcome, report.claimed, report.verified, report.expectation.met) == ("completed", True, True, True)
    command, patch = jsonl(paths.tool_calls)
    assert (command["kind"], command["ok"], command["exitCode"]) == ("command", True, 0)
    assert "note.txt" in command["input"]["command"]
    assert GREET in command["output"]
    assert (patch["kind"], patch["ok"]) == ("patch", True)
    changes = paths.workspace_diff.read_text()
    assert "+name = 'Ada'" in changes
    assert "+seen" in changes
    assert report.metrics.usage is not None
    # Three calls of 100 + 20 each; the turn is what the thread's total grew by.
    assert report.metrics.usage.tokens == Tokens(
        input=300, output=60, total=360, cached_input=120, cache_write=0, reasoning_output=15
    )
    assert ref.facts["identity"].value["sha256"] == locked_codex_sha256()
    assert ref.facts["identity"].authority == "verified"
    assert ref.facts["containment"].value["variant"] == way
    said = [(line["kind"], line.get("status")) for line in jsonl(paths.transcript)]
    assert [kind for kind, _ in said if kind in ("session", "prompt", "message")] == ["session", "prompt", "message"]
    assert [status for kind, status in said if kind == "status"] == ["active", "idle"]
    assert said[-1] == ("summary", "completed")
    baseline, final = jsonl(paths.probes)
    assert (baseline["phase"], baseline["verdict"], final["phase"], final["verdict"]) == (
        "baseline",
        "fail",
        "final",
        "pass",
    )
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("evidence.claimed-vs-verified")
@pytest.mark.requirement("probe.discrimination")
def test_a_claim_without_a_fix_and_a_probe_that_proves_nothing_are_told_apart(lab: Lab) -> None:
    workspace = {"copy": lab.workspace("greeting", {"greet.py": GREET})}
    vacuous = {"kind": "headless_run", "command": ["true"]}
    lab.run(
        lab.write_spec(
            [
                mission("claims", say_done("fixed"), workspace=workspace, probes=[PROBE]),
                mission("vacuous", {"run": "touch any"}, say_done(), workspace=workspace, probes=[vacuous]),
                mission("silent", {"say": "All done, everything works!"}, workspace=workspace),
            ]
        ),
        is_unjudgeable_allowed=True,
    )
    reports = {name.partition(".")[0]: report_of(paths) for name, paths in lab.attempts().items()}
    assert {name: (report.claimed, report.verified) for name, report in reports.items()} == {
        "claims": (True, False),
        "vacuous": (True, None),
        "silent": (None, None),
    }
    assert "already passes on the untouched workspace" in reports["vacuous"].reasons[0]
    assert reports["silent"].reasons == ("the mission has no probe",)


@pytest.mark.requirement("runtime.approvals.answered")
@pytest.mark.parametrize(("approvals", "is_run"), [("deny", False), ("accept", True)])
def test_what_the_agent_asks_is_answered_by_policy_and_on_record(
    lab: Lab, tmp_path: Path, approvals: str, is_run: bool
) -> None:
    outside = tmp_path / "outside.txt"
    asks = mission("asks", {"run": {"command": f"echo out > {outside}", "escalate": True}}, say_done())
    lab.run(lab.write_spec([asks], flow={"approvals": approvals, "isolation": "process"}))
    [paths] = lab.attempts().values()
    assert outside.exists() is is_run
    asked, resolved = [line for line in jsonl(paths.transcript) if line["kind"] == "approval"]
    assert asked["status"] == "asked"
    assert resolved["text"] == ("accept by policy" if is_run else "decline by policy")
    assert report_of(paths).metrics.approvals_asked == 1
    [call] = jsonl(paths.tool_calls)
    assert call["ok"] is is_run
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("runtime.env-policy")
def test_the_agent_and_its_shell_see_the_allow_list_and_what_the_flow_adds(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRELATED_SETTING", "of-the-user")
    lab.run(lab.write_spec([mission("look", {"run": "env"}, say_done())], flow={"env": {"MODE": "fast"}}))
    [paths] = lab.attempts().values()
    [call] = jsonl(paths.tool_calls)
    assert "MODE=fast" in call["output"]
    assert "PROCTOR_ATTEMPT=look.codex.r1.1" in call["output"]
    assert "UNRELATED_SETTING" not in call["output"]
    names = runner_ref_of(paths).facts["environment"].value
    assert "MODE" in names
    assert "of-the-user" not in paths.runner_ref.read_text()


@pytest.mark.requirement("runtime.strategy.fallback")
@pytest.mark.requirement("runtime.strategy.ids")
def test_a_chain_falls_to_the_next_and_says_why(lab: Lab) -> None:
    lab.run(lab.write_spec([mission("any", say_done())], flow={"runtime": ["nonsense", "codex_app_server"]}))
    [paths] = lab.attempts().values()
    resolution = runner_ref_of(paths).facts["resolution"].value
    assert resolution["chosen"] == "codex_app_server"
    assert [(each["runtime"], each["code"]) for each in resolution["refused"]] == [("nonsense", "spec.unknown-runtime")]


def test_a_link_out_of_the_workspace_cannot_pass_for_a_fix(lab: Lab) -> None:
    link = "echo 'print(\"Hello, Ada\")' > $TMPDIR/evil.py; rm greet.py; ln -s $TMPDIR/evil.py greet.py"
    workspace = {"copy": lab.workspace("greeting", {"greet.py": GREET})}
    lab.run(lab.write_spec([mission("link", {"run": link}, say_done(), workspace=workspace, probes=[PROBE])]))
    [paths] = lab.attempts().values()
    assert report_of(paths).verified is False
    assert "lead out of the workspace: greet.py" in report_of(paths).reasons[0]


def test_an_agent_that_rewrites_its_own_evidence_gets_no_seal(lab: Lab) -> None:
    forge = f"for f in {lab.root}/runs/*/attempts/*/prompt.txt; do echo nothing > $f; done"
    flow = {"isolation": "process", "sandbox": "danger-full-access", "contain": "none"}
    result = lab.run(lab.write_spec([mission("forge", {"run": forge}, say_done())], flow=flow))
    [attempt] = result.attempts
    assert attempt.error is not None
    assert attempt.error.code == "evidence.digest"
    [paths] = lab.attempts().values()
    assert not paths.seal.exists()


def test_an_agent_that_changes_the_frozen_workspace_spoils_no_later_attempt_unnoticed(lab: Lab) -> None:
    workspace = {"copy": lab.workspace("greeting", {"greet.py": GREET})}
    pollute = "for f in ../../../bases/*/greet.py; do echo pass > $f; done"
    missions = [
        mission("first", {"run": pollute}, say_done(), workspace=workspace),
        mission("second", say_done(), workspace=workspace),
    ]
    flow = {"isolation": "process", "sandbox": "danger-full-access", "contain": "none"}
    result = lab.run(lab.write_spec(missions, flow=flow, schedule={"parallel": 1}))
    first, second = result.attempts
    assert first.summary is not None
    assert second.error is not None
    assert second.error.code == "workspace.base-changed"
