"""`proctor run`: what it says, what it writes, and how it is stopped."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.lab import Lab, mission, say_done, wait_until
from tests.surface.conftest import Quickstart, ask, started

pytestmark = pytest.mark.real_agent

NAP = "sleep 307.25"


def test_the_quickstart_comes_out_as_expected_and_says_what_to_do_next(quickstart: Quickstart) -> None:
    said = quickstart.said
    assert said.returncode == 0, said.stderr
    plain = re.sub(r"[\d.,]+ (ms|s)\b|\d,\d{3}|\d{8}-\d{6}-[0-9a-f]{6}", "#", said.stdout)
    lines = [re.sub(r" {2,}", "  ", line).strip() for line in plain.splitlines() if line]
    at = next(at for at, line in enumerate(lines) if line.startswith("mission/flow"))
    assert lines[0] == "quickstart-#  in #"
    assert lines[at : at + 7] == [
        "mission/flow  runtime  outcome  claimed  verified  passed  expected  tools  time",
        "ask/codex  codex_app_server  completed  yes  no probe  (yes)  yes  0  #",
        "shell/codex  codex_app_server  completed  yes  no probe  (yes)  yes  1  #",
        "fix/codex  codex_app_server  completed  yes  yes  yes  yes  2  #",
        "claim/codex  codex_app_server  completed  yes  NO  NO  yes  1  #",
        "ask/codex, shell/codex  verified unknown: the mission has no probe",
        "claim/codex  verified NO: `python3 greet.py`: exited 0 and printed 'Hello, world\\n'",
    ]
    assert lines[-2:] == [
        "With probes: 1 of 2 verified. Without probes: 2 of 2 passed. As expected: 4 of 4.",
        "claim.codex.r1.1: claimed yes, verified NO",
    ]
    footer = ("  evidence", "  report", "  diff", "  next", "   ")
    assert max(len(line) for line in said.stdout.splitlines() if not line.startswith(footer)) <= 100
    commands = r"next +\S+ -m proctor (attempt explain \S+/claim\.codex\.r1\.1) --root \S+\n"
    [explain] = re.findall(commands, said.stdout)
    assert "The agent claims success, but a probe failed" in ask(quickstart.lab, *explain.split()).stdout


def test_infrastructure_failures_that_stand_are_tried_again_by_the_command_that_is_named(lab: Lab) -> None:
    said = lab.proctor_process("run", str(lab.write_spec([mission("m", say_done())], hooks={"before": ["false"]})))
    assert said.returncode == 3, said.stdout
    [again] = re.findall(r"next +\S+ -m proctor (retry --only infra lab-\S+) --root \S+\n", said.stdout)
    idle = lab.proctor("campaign", "resume").stdout
    assert idle.startswith("Nothing to run: every trial has a result.\n\nlab-")
    once_more = lab.proctor(*again.split()).stdout
    assert once_more.startswith("lab-")
    assert "not counted, because another attempt of the trial counts: " in once_more


def test_a_retry_of_nothing_says_so_before_the_table(quickstart: Quickstart) -> None:
    said = quickstart.lab.proctor("retry", "--only", "infra")
    assert said.stdout.startswith("Nothing to run: no trial failed for infrastructure reasons.\n\nquickstart-")
    assert " in " not in said.stdout.splitlines()[2], "how long the command took is not how long the campaign took"


@pytest.mark.requirement("surface.progress")
def test_without_a_terminal_progress_is_plain_lines_on_stderr(quickstart: Quickstart) -> None:
    lines = quickstart.said.stderr.splitlines()
    assert "\x1b" not in quickstart.said.stderr
    ended = sorted(line.split()[2:5] for line in lines if "ended" in line)
    assert ended[0] == ["ask.codex.r1.1", "ended:", "completed"]
    assert lines[-1].endswith("(4 of 4)")


@pytest.mark.requirement("evidence.claimed-vs-verified")
def test_the_report_is_kept_beside_the_ledger_and_names_folders_from_the_root_on(quickstart: Quickstart) -> None:
    [campaign] = (quickstart.lab.root / "campaigns").iterdir()
    report = json.loads((campaign / "report.json").read_text())
    told = {
        row["missionId"]: (row["summary"]["claimed"], row["summary"]["verified"], row["summary"]["expectation"]["met"])
        for row in report["attempts"]
    }
    assert told == {
        "ask": (True, None, True),
        "shell": (True, None, True),
        "fix": (True, True, True),
        "claim": (True, False, True),
    }
    assert (report["exit"], report["verdict"]) == (0, "ok")
    for row in report["attempts"]:
        assert not Path(row["dir"]).is_absolute()
        assert (quickstart.lab.root / row["dir"] / "seal.json").is_file()
    results = (campaign / "RESULTS.md").read_text()
    assert "| claim/codex | codex_app_server | completed | yes | **NO** | **NO** | yes | 1 |" in results
    assert str(quickstart.lab.root) not in results


@pytest.mark.requirement("surface.cli")
def test_a_missed_expectation_exits_1_and_json_is_alone_on_stdout(lab: Lab) -> None:
    spec = lab.write_spec([mission("ask", say_done("5"), expect={"answer": "4", "verified": "unknown"})])
    said = lab.proctor("run", str(spec), "--json", "--keep-scratch")
    report = json.loads(said.stdout)
    assert (said.returncode, report["exit"], report["verdict"]) == (1, 1, "not as expected")
    [row] = report["attempts"]
    assert row["summary"]["expectation"]["unmet"] == ["answer: expected '4', got '5'"]
    assert (Path(row["dir"]) / "seal.json").is_file()
    missed = "An expectation was not met: answer: expected '4', got '5'"
    assert ask(lab, "attempt", "explain", "ask", "--json").json["next"][0] == missed
    again = ask(lab, "report", "--json")
    assert (again.code, again.json["attempts"][0]["summary"]) == (1, row["summary"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_lets_what_is_running_finish(lab: Lab, tmp_path: Path, number: signal.Signals) -> None:
    gate = tmp_path / "gate"
    missions = [
        mission("nap", {"run": f"until [ -e {gate} ]; do sleep 0.05; done; : {NAP}"}, say_done()),
        mission("next", say_done()),
    ]
    spec = lab.write_spec(missions, schedule={"parallel": 1})
    with napping(lab, spec) as running:
        running.send_signal(number)
        gate.touch()
        report = json.loads(running.communicate(timeout=60)[0])
    [row] = report["attempts"]
    assert (running.returncode, report["exit"], [each["trial"] for each in report["missing"]]) == (
        130,
        130,
        ["next.codex.r1"],
    )
    assert (row["summary"]["outcome"], row["code"], row["state"]) == ("completed", None, "sealed")
    assert ask(lab, "report").code == 4


def test_a_second_signal_ends_what_is_running_sealed_as_cancelled(lab: Lab) -> None:
    missions = [mission("nap", {"run": NAP}, say_done()), mission("next", say_done())]
    spec = lab.write_spec(missions, schedule={"parallel": 1})
    code, report = interrupted(lab, spec, signal.SIGINT, signal.SIGTERM)
    [row] = report["attempts"]
    assert (code, report["exit"]) == (130, 130)
    missing = {each["trial"]: each["why"] for each in report["missing"]}
    assert missing == {"nap.codex.r1": "cancelled", "next.codex.r1": "never tried"}
    assert (row["summary"]["outcome"], row["code"], row["state"]) == ("cancelled", "run.cancelled", "sealed")
    assert ask(lab, "validate", "--strict", row["dir"]).code == 0
    assert ask(lab, "report").code == 4


@pytest.mark.requirement("evidence.integrity")
def test_a_third_signal_cuts_off_and_what_was_recorded_reads_as_partial(lab: Lab) -> None:
    spec = lab.write_spec([mission("nap", {"run": NAP}, say_done())])
    code, told = interrupted(lab, spec, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    assert (code, told["error"]["code"]) == (130, "run.cancelled")
    [run], [campaign] = ([*(lab.root / name).iterdir()] for name in ("runs", "campaigns"))
    assert told["error"]["file"] == str(run)
    assert told["error"]["suggestion"].endswith(f" campaign resume {campaign.name} --root {lab.root}")
    [row] = ask(lab, "attempt", "list", "--json").json["attempts"]
    assert (row["state"], row["summary"], row["tokens"]) == ("partial", None, None)
    checked = ask(lab, "validate", "--strict", row["dir"], "--json")
    assert (checked.code, checked.json["status"]) == (4, "partial")
    reported = ask(lab, "report", "--strict", "--json")
    assert (reported.code, reported.json["attempts"][0]["evidence"]) == (4, "partial")
    explained = ask(lab, "attempt", "explain", "nap")
    assert explained.code == 0
    assert "cut off: not sealed" in explained.stdout
    assert "Actions   1 tool call, " in explained.stdout
    assert re.search(r"1  shell  sleep 307\.25 +never ended", explained.stdout)
    assert "evidence.partial" in explained.stdout
    assert "sleep 307.25" in explained.stdout


def test_what_still_runs_is_told_as_running_and_not_as_cut_off(lab: Lab) -> None:
    spec = lab.write_spec([mission("nap", {"run": NAP}, say_done())])
    with napping(lab, spec) as running:
        checked = ask(lab, "validate", "--strict")
        assert (checked.code, "running attempt nap.codex.r1.1" in checked.stdout) == (4, True)
        assert "cut off" not in checked.stdout
        explained = ask(lab, "attempt", "explain", "nap").stdout
        assert ("still running" in explained, "cut off" in explained) == (True, False)
        for number in (signal.SIGINT, signal.SIGTERM):
            running.send_signal(number)
        running.communicate(timeout=60)


@contextmanager
def napping(lab: Lab, spec: Path) -> "Iterator[Popen[str]]":
    """A run whose agent's command runs."""
    with started(lab, "run", str(spec), "--json") as running:
        wait_until(lambda: any(has_begun(each.frames) for each in lab.attempts().values()))
        yield running


def interrupted(lab: Lab, spec: Path, *numbers: signal.Signals) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON of a run that gets these signals while the agent's command runs."""
    with napping(lab, spec) as running:
        for number in numbers:
            running.send_signal(number)
        stdout, _ = running.communicate(timeout=60)
    return running.returncode, json.loads(stdout)


def has_begun(frames: Path) -> bool:
    return frames.exists() and NAP.encode() in frames.read_bytes()
