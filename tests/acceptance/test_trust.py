"""Wrong numbers that users met, each by its name. The specs are those of examples/trust."""

import json
import os
import re
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from proctor import places
from tests.lab import Lab, mission, say_done, wait_until

TRUST = Path(__file__).parent.parent.parent / "examples" / "trust"


def report_of(lab: Lab) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(lab.proctor("campaign", "report", "--attempts", "--json").stdout)
    return report


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.trust
@pytest.mark.requirement("campaign.unjudged")
def test_unjudgeable_probes_stop_the_campaign_before_the_first_attempt(lab: Lab) -> None:
    spec = TRUST / "unjudgeable.yaml"
    passing = lab.proctor("run", str(spec))
    assert passing.returncode == 2
    assert "probe.passes-untouched" in passing.stderr
    assert re.search(r"unjudgeable\.yaml:\d+: missions\[2\]\.probes\[0\]", passing.stderr)
    assert "mission `vacuous`: the probe passes on the untouched workspace: bash -c true" in passing.stderr
    for words in (["run", str(spec), "--mission", "misspelled"], ["campaign", "canary", str(spec), "--range", "2"]):
        unable = lab.proctor(*words)
        assert unable.returncode == 3
        assert "probe.cannot-run" in unable.stderr
        assert "the probe cannot run: graep is not on this machine: graep -q Hello greeting.txt" in unable.stderr
    assert lab.attempts() == {}
    assert json.loads(lab.proctor("campaign", "list", "--json").stdout) == {"campaigns": []}


@pytest.mark.long
@pytest.mark.trust
@pytest.mark.requirement("campaign.unjudged")
def test_unjudged_results_are_reported_apart_and_never_published(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    done = lab.proctor("run", str(TRUST / "unjudgeable.yaml"), "--allow-unjudgeable")
    assert done.returncode == 4
    assert "the probe passes on the untouched workspace" in done.stderr
    report = report_of(lab)
    score = report["score"]
    assert (score["verified"]["scored"], score["verified"]["passed"], score["unjudged"]) == (2, 2, 4)
    assert (score["expected"], score["unexpected"], report["failures"]) == (2, 0, [])
    kinds = {(each["missionId"], each["why"]) for each in report["unjudged"]}
    assert kinds == {("misspelled", "untouched-unavailable"), ("vacuous", "passes-untouched")}
    for words in ([], ["--format", "md"]):
        text = " ".join(lab.proctor("campaign", "report", *words).stdout.split())
        assert "Not scored: the probes could not judge (4)" in text
        assert "With probes: 2 of 2 verified." in text
    junit = ElementTree.fromstring(lab.proctor("campaign", "report", "--format", "junit").stdout)
    [suite] = [each for each in junit if each.get("name") == "greeter (scripted)"]
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["6", "0", "0", "4"]
    skipped = {each.get("message") for each in suite.iter("skipped")}
    assert any("graep is not on this machine" in message for message in skipped if message)
    blocked = lab.proctor("campaign", "publish-check")
    assert blocked.returncode == 4
    assert "publish.unjudged" in blocked.stdout
    assert lab.proctor("validate", "--strict").returncode == 0


CRASHING = {"runtime": ["process"], "options": {"process": {"command": "exit 7"}}}


@pytest.mark.trust
@pytest.mark.requirement("campaign.unjudged")
def test_crash_of_an_agent_is_not_scored_if_the_probe_cannot_judge(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    vacuous, judging = ({"kind": "headless_run", "command": word} for word in ("true", "test -e done"))
    missions = [
        mission("judged", say_done(), probes=[judging]),
        mission("vacuous", say_done(), probes=[vacuous, judging]),
    ]
    spec = lab.write_spec(missions, flow=CRASHING)
    lab.proctor("run", str(spec), "--allow-unjudgeable")
    report = report_of(lab)
    assert report["score"]["verified"]["scored"] == 1
    assert [each["missionId"] for each in report["failures"]] == ["judged"]
    assert [each["missionId"] for each in report["unjudged"]] == ["vacuous"]


@pytest.mark.long
@pytest.mark.trust
@pytest.mark.requirement("campaign.unjudged")
@pytest.mark.parametrize("program", ["[./check.sh]", "./check.sh", "bash check.sh"])
def test_program_that_the_workspace_lacks_is_an_ordinary_failure(lab: Lab, program: str) -> None:
    lab.is_other_agent_allowed = True
    command = [program[1:-1]] if program.startswith("[") else program
    probe = {"kind": "headless_run", "command": command}
    works = {"process": {"command": "printf '#!/bin/sh\\nexit 0\\n' >check.sh; chmod +x check.sh"}}
    for options, code in ((works, 0), ({"process": {"command": "true"}}, 1)):
        flow = {"runtime": ["process"], "options": options}
        spec = lab.write_spec([mission("script", say_done(), probes=[probe])], flow=flow)
        done = lab.proctor("run", str(spec), "--json")
        verified = json.loads(done.stdout)["score"]["verified"]
        assert (done.returncode, verified["scored"], verified["passed"]) == (code, 1, 1 - code)


BREAKING = {
    "bad interpreter": (["./check.sh"], "printf '#!/no/such/shell\\n' >check.sh; chmod +x check.sh"),
    "forged message": (
        ["bash", "check.sh"],
        "echo 'echo bash: line 1: zork: command not found >&2; exit 127' >check.sh",
    ),
    "forged message of the shell": (
        "bash check.sh all",
        "echo 'echo bash: line 1: all: command not found >&2; exit 127' >check.sh",
    ),
    "forged module": (["python3", "-m", "pytest"], "echo 'exit(\"python3: No module named pytest\")' >pytest.py"),
}


@pytest.mark.long
@pytest.mark.trust
@pytest.mark.requirement("campaign.unjudged")
@pytest.mark.parametrize("name", BREAKING)
def test_agent_that_breaks_its_probe_has_failed(lab: Lab, name: str) -> None:
    lab.is_other_agent_allowed = True
    command, work = BREAKING[name]
    probe = {"kind": "headless_run", "command": command}
    files = {"pytest.py": "exit(1)", "check.sh": "exit 1"}
    workspace = {"copy": lab.workspace("base", files)}
    missions = [mission("task", say_done(), probes=[probe], workspace=workspace)]
    spec = lab.write_spec(missions, flow={"runtime": ["process"], "options": {"process": {"command": work}}})
    assert lab.proctor("run", str(spec)).returncode == 1
    [row] = report_of(lab)["attempts"]
    assert row["summary"]["verified"] is False
    assert row["summary"]["reasonCodes"] in (["fails"], ["broken"])


TAMPERING = {
    "replaced": "printf '#!/bin/sh\\nexit 0\\n' >{tools}/judge",
    "shadowed": "mkdir -p {first}; printf '#!/bin/sh\\nexit 0\\n' >{first}/judge; chmod +x {first}/judge",
    "removed": "rm {tools}/judge",
}


@pytest.mark.trust
@pytest.mark.requirement("probe.gate")
@pytest.mark.parametrize("how", TAMPERING)
@pytest.mark.parametrize("command", [["judge"], "judge"])
def test_agent_that_changes_the_program_of_its_probe_has_failed(lab: Lab, how: str, command: str | list[str]) -> None:
    lab.is_other_agent_allowed = True
    tools, first = lab.folder / "tools", lab.folder / "first"
    tools.mkdir()
    (tools / "judge").write_text("#!/bin/sh\nexit 1\n")
    (tools / "judge").chmod(0o755)
    work = TAMPERING[how].format(tools=tools, first=first)
    probe = {"kind": "headless_run", "command": command, "contain": "none"}
    flow = {
        "runtime": ["process"],
        "sandbox": "danger-full-access",
        "isolation": "process",
        "options": {"process": {"command": f"{work}; touch done"}},
    }
    spec = lab.write_spec([mission("task", say_done(), probes=[probe])], flow=flow)
    done = lab.proctor("run", str(spec), PATH=f"{first}:{tools}:{os.environ['PATH']}")
    assert done.returncode == 1, done.stderr
    [row] = report_of(lab)["attempts"]
    assert (row["summary"]["verified"], row["summary"]["reasonCodes"]) == (False, ["tampered"])
    assert "tampered: " in row["summary"]["reasons"][0]
    assert "judge, which the probe runs, was changed meanwhile" in row["summary"]["reasons"][0]


@pytest.mark.trust
@pytest.mark.requirement("probe.gate")
def test_program_of_a_probe_that_the_operator_changes_during_a_fenced_attempt_is_not_held_against_the_agent(
    lab: Lab,
) -> None:
    lab.is_other_agent_allowed = True
    tools = lab.folder / "tools"
    tools.mkdir()
    (tools / "judge").write_text("#!/bin/sh\ntest -e done\n")
    (tools / "judge").chmod(0o755)
    flow = {
        "runtime": ["process"],
        "isolation": "process",
        "options": {"process": {"command": "touch started; until [ -e go ]; do sleep 0.02; done; touch done"}},
    }

    def upgrade() -> None:
        def started() -> list[Path]:
            return list((places.cache_dir() / "runs").glob("*/attempts/*/workspace/started"))

        wait_until(lambda: bool(started()))
        with (tools / "judge").open("a") as program:
            program.write("# version 2\n")
        (started()[0].parent / "go").touch()

    upgrading = threading.Thread(target=upgrade)
    upgrading.start()
    probe = {"kind": "headless_run", "command": ["judge"], "contain": "none"}
    spec = lab.write_spec([mission("task", say_done(), probes=[probe])], flow=flow)
    done = lab.proctor("run", str(spec), PATH=f"{tools}:{os.environ['PATH']}")
    upgrading.join(timeout=30)
    assert done.returncode == 4, done.stderr
    [row] = report_of(lab)["attempts"]
    assert (row["summary"]["verified"], row["summary"]["reasonCodes"]) == (None, ["program-changed"])
