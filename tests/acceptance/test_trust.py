"""Wrong numbers that users met, each by its name. The specs are those of examples/trust."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.lab import Lab, mission, say_done

TRUST = Path(__file__).parent.parent.parent / "examples" / "trust"


def report_of(lab: Lab) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(lab.proctor("campaign", "report", "--json").stdout)
    return report


@pytest.mark.trust
@pytest.mark.requirement("campaign.no-picking")
def test_picking_of_results_is_refused_shown_and_never_published(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    done = lab.proctor("run", str(TRUST / "coin-flip.yaml"))
    assert done.returncode == 1
    first = report_of(lab)["score"]["verified"]
    assert (first["scored"], first["firstPassed"]) == (8, None)
    failed = [each["attemptId"] for each in report_of(lab)["failures"]]

    for attempt in failed:
        refused = lab.proctor("retry", "--only", attempt)
        assert refused.returncode == 2
        assert "campaign.scored-result" in refused.stderr
    assert report_of(lab)["score"]["verified"] == first

    lab.proctor("retry", "--only", "guess", "--replace", "--reason", "try our luck")
    report = report_of(lab)
    now = report["score"]["verified"]
    assert (now["scored"], now["firstPassed"]) == (8, first["passed"])
    assert [each["reason"] for each in report["replacements"]] == ["try our luck"] * 8
    assert {each["attemptId"].rpartition(".")[2] for each in report["replacements"]} == {"2"}
    shown = f"first results: {first['passed']}/8"
    assert shown in " ".join(lab.proctor("campaign", "report").stdout.split())
    assert shown in lab.proctor("campaign", "report", "--format", "md").stdout
    junit = ElementTree.fromstring(lab.proctor("campaign", "report", "--format", "junit").stdout)
    properties = {(each.get("name"), each.get("value")) for each in junit.iter("property")}
    assert {("firstResult", "failed"), ("replacedBecause", "try our luck")} <= properties

    blocked = lab.proctor("campaign", "publish-check")
    assert blocked.returncode == 1
    assert "publish.replaced" in blocked.stdout
    assert lab.proctor("validate", "--strict").returncode == 0


@pytest.mark.trust
@pytest.mark.requirement("campaign.no-picking")
def test_replacing_results_needs_a_reason(lab: Lab) -> None:
    for words in (["--replace"], ["--reason", "because"], ["--replace", "--reason", " "]):
        refused = lab.proctor("retry", "--only", "guess", *words)
        assert refused.returncode == 2
        assert "--replace and --reason TEXT must be given together" in refused.stderr


@pytest.mark.trust
@pytest.mark.requirement("schedule.recovery")
def test_program_that_cannot_be_executed_is_infrastructure(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    assert lab.proctor("run", str(TRUST / "dead-program.yaml")).returncode == 3
    report = report_of(lab)
    assert report["score"]["verified"]["scored"] == 0
    assert report["score"]["buckets"] == {"infra": 8}
    assert {(row["code"], row["bucket"]) for row in report["attempts"]} == {("machine.spawn-failed", "infra")}
    detail = report["attempts"][0]["summary"]["detail"]
    assert "exited with code 127" in detail
    assert "no-such-agent" in detail
    assert lab.proctor("campaign", "publish-check").returncode == 4


DEAD_CODEX = """\
#!/bin/sh
case "$1" in
  --version) echo "codex-cli 0.163.0" ;;
  *) echo "fatal: libssl.so.3: cannot open shared object file" >&2; exit 3 ;;
esac
"""


@pytest.mark.trust
@pytest.mark.requirement("schedule.recovery")
@pytest.mark.parametrize(
    ("runtime", "isolation"),
    [("codex_app_server", "shared"), ("codex_app_server", "process"), ("codex_exec", "process")],
)
def test_agent_program_that_exits_at_once_is_never_scored(lab: Lab, runtime: str, isolation: str) -> None:
    lab.is_other_agent_allowed = True
    program = lab.folder / "codex"
    program.write_text(DEAD_CODEX)
    program.chmod(0o755)
    lab.env["PROCTOR_CODEX"] = str(program)
    probe = {"kind": "headless_run", "command": ["cat", "done.txt"], "stdout": "done"}
    spec = lab.write_spec(
        [mission("fix", say_done(), probes=[probe])],
        flow={"runtime": [runtime], "isolation": isolation},
        repeats=2,
    )
    assert lab.proctor("run", str(spec)).returncode == 3
    report = report_of(lab)
    assert (report["score"]["verified"]["scored"], report["score"]["results"]) == (0, 2)
    assert {row["bucket"] for row in report["attempts"]} == {"infra"}
    for row in report["attempts"]:
        assert "status 3" in row["detail"]
        assert "libssl.so.3: cannot open shared object file" in row["detail"]
    assert lab.proctor("campaign", "publish-check").returncode == 4


@pytest.mark.trust
@pytest.mark.real_agent
@pytest.mark.requirement("surface.stats")
def test_scripted_run_is_labelled_and_compare_of_scripts_names_no_winner(lab: Lab) -> None:
    good, bad = ({"run": f"printf {word} >done.txt"} for word in ("done", "undone"))
    probe = {"kind": "headless_run", "command": ["cat", "done.txt"], "stdout": "done"}
    workspace = {"copy": lab.workspace("empty", {"a.txt": ""})}
    flows = [{"id": id_, "runtime": ["codex_app_server"]} for id_ in ("one", "two")]
    missions = [
        mission(f"m{at}", step, say_done(), probes=[probe], workspace=workspace) for at, step in enumerate((good, bad))
    ]
    lab.proctor("run", str(lab.write_spec(missions, flows=flows)))
    label = "scripted: replies come from a file, so this measures the script, not a model"
    assert label in " ".join(lab.proctor("campaign", "report").stdout.split())
    assert label in lab.proctor("campaign", "report", "--format", "md").stdout
    assert report_of(lab)["scriptedFlows"] == ["one", "two"]
    assert {row["summary"]["isScripted"] for row in report_of(lab)["attempts"]} == {True}
    assert 'name="one (scripted)"' in lab.proctor("campaign", "report", "--format", "junit").stdout
    assert "scripted" in lab.proctor("attempt", "list").stdout

    compared = lab.proctor("compare", "one", "two")
    assert compared.returncode == 0, compared.stderr
    assert "Scripted: compares two scripts, not two agents (50 % and 50 %)" in " ".join(compared.stdout.split())
    assert "p =" not in compared.stdout
    assert "significant" not in compared.stdout
