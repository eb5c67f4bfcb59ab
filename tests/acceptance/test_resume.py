"""Campaigns that are killed, stopped or raced for go on where their seals end, on the real agent."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

import proctor
from proctor.attempt.recheck import examine_run
from proctor.campaign.lock import campaign_lock
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import ProcessId, RunId
from proctor.report.campaign_state import STAMP_CHARS
from tests.lab import Lab, mission, processes_with, say_done, wait_until
from tests.surface.conftest import ask

pytestmark = pytest.mark.real_agent

QUICK = [mission(f"quick{number}", {"run": f"echo {number} > out"}, say_done(str(number))) for number in range(4)]


def waiting_for(gate: Path) -> dict[str, Any]:
    """A mission that ends when the gate is there."""
    return mission("slow", {"run": f"until [ -e {gate} ]; do sleep 0.05; done"}, say_done("slow"))


def campaign_of(lab: Lab) -> CampaignPaths:
    [campaign] = RootPaths(lab.root).campaigns()
    return campaign


def ledger(lab: Lab) -> list[tuple[str, str, str | None, str | None]]:
    with closing(sqlite3.connect(campaign_of(lab).ledger)) as reader:
        return reader.execute("select id, state, outcome, code from attempt order by id").fetchall()


def sealed(lab: Lab) -> set[str]:
    return {name for name, paths in lab.attempts().items() if paths.seal.exists()}


@contextmanager
def running(lab: Lab, *words: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A Proctor that is dead afterwards."""
    process = lab.start(*words)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def spec_of(lab: Lab, gate: Path) -> Path:
    return lab.write_spec([waiting_for(gate), *QUICK], schedule={"parallel": 2})


def killed_in_the_middle(lab: Lab, spec: Path, gate: Path) -> None:
    """The quick ones are sealed, the slow one is in its turn."""
    with running(lab, "run", str(spec)) as victim:
        wait_until(lambda: len(sealed(lab)) == len(QUICK) and processes_with(str(gate)) != [])
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(timeout=10)


@pytest.mark.requirement("campaign.resume")
@pytest.mark.requirement("evidence.crash-safe")
def test_a_campaign_that_was_killed_goes_on_at_once_and_every_trial_has_one_result(lab: Lab, gate: Path) -> None:
    spec = spec_of(lab, gate)
    killed_in_the_middle(lab, spec, gate)
    before = {paths.seal: paths.seal.read_bytes() for paths in lab.attempts().values() if paths.seal.exists()}
    gate.touch()
    resumed = lab.proctor("campaign", "resume", "--json")
    assert ledger(lab) == [
        *((f"quick{number}.codex.r1.1", "sealed", "completed", None) for number in range(4)),
        ("slow.codex.r1.1", "abandoned", "unknown", "run.cut-off"),
        ("slow.codex.r1.2", "sealed", "completed", None),
    ], resumed.stderr
    assert {path: path.read_bytes() for path in before} == before
    report = json.loads(resumed.stdout)
    assert len(report["runs"]) == 2
    assert report["missing"] == []
    assert {each["trial"] for each in report["attempts"] if each["state"] == "sealed"} == {
        "slow.codex.r1",
        *(f"quick{number}.codex.r1" for number in range(4)),
    }
    found = [each for run in RootPaths(lab.root).runs() for each in examine_run(run, is_strict=True)]
    assert {each.status for each in found if each.name in sealed(lab)} == {"valid"}
    # There is nothing left to do, and doing it changes nothing.
    assert lab.run(spec, resume=campaign_of(lab)).attempts == ()
    assert len(ledger(lab)) == 6
    assert len(list(RootPaths(lab.root).runs())) == 2


@pytest.mark.trust
@pytest.mark.requirement("campaign.gates")
@pytest.mark.requirement("evidence.validate")
def test_campaign_that_was_killed_and_resumed_is_complete_by_every_command(
    lab: Lab, gate: Path, tmp_path: Path
) -> None:
    probe = {"kind": "headless_run", "command": ["cat", "done.txt"], "stdout": "done\n"}
    slow = {**waiting_for(gate), "workspace": {"copy": lab.workspace("empty", {"a.txt": ""})}, "probes": [probe]}
    slow["steps"] = [{"run": f"until [ -e {gate} ]; do sleep 0.1; done; echo done >done.txt"}, say_done()]
    spec = lab.write_spec([slow, *QUICK], schedule={"parallel": 2})
    killed_in_the_middle(lab, spec, gate)
    killed = json.loads(lab.proctor("validate", "--strict", "--json").stdout)
    assert (killed["status"], killed["exit"]) == ("partial", 4)
    gate.touch()
    lab.proctor("campaign", "resume", "--json")

    examined = json.loads(lab.proctor("validate", "--strict", "--json").stdout)
    assert (examined["status"], examined["exit"]) == ("valid", 0)
    statuses = {each["name"]: each["status"] for each in examined["examined"]}
    assert statuses["slow.codex.r1.1"] == "abandoned"
    assert statuses["slow.codex.r1.2"] == "valid"
    assert "1 abandoned" in lab.proctor("validate", "--strict").stdout
    assert lab.proctor("campaign", "publish-check").returncode == 0
    # A process record that is missing although its run ended well is not excused, by either of them.
    [process] = [each for each in examined["examined"] if (each["kind"], each["status"]) == ("process", "valid")]
    RootPaths(lab.root).run(RunId(process["runId"])).runtime(ProcessId(process["name"])).record.unlink()
    assert lab.proctor("validate", "--strict").returncode == 4
    assert lab.proctor("campaign", "publish-check").returncode == 4
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    signed = lab.proctor("sign", str(lab.root), "--key", str(key))
    assert signed.returncode == 4
    assert f"exit code 4: 1 item without complete evidence\n  process {process['name']}: " in signed.stdout


def files_of(campaign: CampaignPaths) -> dict[str, bytes]:
    """All that is written once. The ledger and what it is at now are the running one's to change."""
    changing = ("ledger.db", "live.json")
    files = (file for file in campaign.folder.rglob("*") if file.is_file() and not file.name.startswith(changing))
    return {str(file.relative_to(campaign.folder)): file.read_bytes() for file in files}


def test_whoever_loses_the_race_for_a_campaign_changes_nothing_and_a_cancelled_one_goes_on(
    lab: Lab, gate: Path
) -> None:
    spec = lab.write_spec([waiting_for(gate), *QUICK[:2]], schedule={"parallel": 1})
    with running(lab, "run", str(spec)) as owner:
        wait_until(lambda: processes_with(str(gate)) != [])
        before = files_of(campaign_of(lab))
        lost = ask(lab, "campaign", "resume", "--json")
        assert (lost.code, lost.json["error"]["code"]) == (3, "machine.locked")
        assert files_of(campaign_of(lab)) == before
        cancelled = ask(lab, "campaign", "cancel", "--json")
        assert cancelled.json == {"campaignId": campaign_of(lab).folder.name, "pid": owner.pid, "isNow": False}
        wait_until(lambda: is_ending(lab))
        # Asked once more, it still finishes what runs.
        assert ask(lab, "campaign", "cancel", "--json").json == cancelled.json
        gate.touch()
        assert owner.wait(timeout=60) == 130
    assert ledger(lab) == [("slow.codex.r1.1", "sealed", "completed", None)]
    idle = ask(lab, "campaign", "cancel", "--json")
    assert (idle.code, idle.json["error"]["code"]) == (2, "campaign.not-running")
    campaign_id = campaign_of(lab).folder.name
    report = anyio.run(lambda: proctor.run(spec, root=lab.root, resume=campaign_id))
    assert [each.attempt_id for each in report.attempts] == [
        "slow.codex.r1.1",
        "quick0.codex.r1.1",
        "quick1.codex.r1.1",
    ]
    assert report.campaign_id == campaign_id


def is_ending(lab: Lab) -> bool:
    live = ask(lab, "campaign", "status", "--json").json["live"]
    return live is not None and live["stopping"] is not None


def test_what_is_cancelled_now_is_sealed_whatever_was_asked_before_and_however_often(lab: Lab, gate: Path) -> None:
    spec = lab.write_spec([waiting_for(gate), *QUICK[:1]], schedule={"parallel": 1})
    with running(lab, "run", str(spec)) as owner:
        wait_until(lambda: processes_with(str(gate)) != [])
        owner.send_signal(signal.SIGINT)
        wait_until(lambda: is_ending(lab))
        # The first of these may have ended it before the second comes.
        assert ask(lab, "campaign", "cancel", "--now").code == 0
        assert ask(lab, "campaign", "cancel", "--now").code in (0, 2)
        assert owner.wait(timeout=60) == 130
    assert ledger(lab) == [("slow.codex.r1.1", "sealed", "cancelled", "run.cancelled")]


def test_a_canary_that_is_cut_off_is_not_said_to_be_resumable(lab: Lab, gate: Path) -> None:
    spec = lab.write_spec([waiting_for(gate)])
    with subprocess.Popen(
        [sys.executable, "-m", "proctor", "campaign", "canary", str(spec), "--root", str(lab.root)],
        cwd=lab.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as canary:
        wait_until(lambda: processes_with(str(gate)) != [])
        said = ask(lab, "campaign", "cancel", "--now")
        assert (said.code, "resume" in said.stdout) == (0, False)
        # Stopped by the one, it is cut off by the next, unless it has ended by then.
        canary.send_signal(signal.SIGTERM)
        _, stderr = canary.communicate(timeout=60)
        assert canary.returncode == 130
    assert b"resume" not in stderr


def test_a_program_that_runs_a_campaign_by_itself_does_not_die_of_a_cancel(lab: Lab) -> None:
    lab.run(lab.write_spec([QUICK[0]]))
    with campaign_lock(campaign_of(lab)):
        for words in ((), ("--now",)):
            said = ask(lab, "campaign", "cancel", *words, "--json")
            assert (said.code, said.json["error"]["code"]) == (2, "campaign.not-running")
            assert f"by process {os.getpid()}" in said.json["error"]["what"]


def names(lab: Lab) -> list[str]:
    """The campaigns there are, without their times."""
    return [campaign.folder.name[:-STAMP_CHARS] for campaign in RootPaths(lab.root).campaigns()]


@pytest.mark.requirement("campaign.canary")
def test_a_canary_and_a_second_run_leave_the_campaign_as_it_is(lab: Lab) -> None:
    spec = lab.write_spec(QUICK[:2], repeats=2)
    canary = ask(lab, "campaign", "canary", str(spec), "--json")
    assert [each["trial"] for each in canary.json["attempts"]] == ["quick0.codex.r1"]
    assert names(lab) == ["lab-canary-"]
    refused = ask(lab, "campaign", "resume", "lab-canary", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (2, "campaign.canary")
    none = ask(lab, "campaign", "resume", "--json")
    assert (none.code, none.json["error"]["code"]) == (2, "evidence.not-found")

    first, second = ask(lab, "campaign", "run", str(spec), "--json"), ask(lab, "run", str(spec), "--json")
    assert names(lab) == ["lab-", "lab-", "lab-canary-"]
    assert first.json["campaignId"] != second.json["campaignId"]
    for said in (first, second):
        assert sorted(each["attemptId"] for each in said.json["attempts"]) == [
            f"quick{number}.codex.r{repeat}.1" for number in (0, 1) for repeat in (1, 2)
        ]
    ask(lab, "campaign", "canary", str(spec))
    # A canary is never what is gone on with, though it is the latest.
    assert ask(lab, "campaign", "resume", "--json").json["campaignId"] == second.json["campaignId"]


@pytest.mark.requirement("campaign.resume")
def test_a_changed_spec_script_or_workspace_is_refused_with_the_difference(lab: Lab) -> None:
    steps = ({"run": "true"}, say_done())
    workspace = {"copy": lab.workspace("shop", {"a.txt": "as it was\n"})}
    spec = lab.write_spec([mission("one", *steps, workspace=workspace)])
    result = lab.run(spec)
    kept = files_of(result.paths)

    def refused() -> str:
        said = ask(lab, "campaign", "resume", "--json")
        assert (said.code, said.json["error"]["code"]) == (2, "campaign.changed")
        assert files_of(result.paths) == kept
        return str(said.json["error"]["what"])

    was = spec.read_text()
    spec.write_text(was.replace("prompt: Do it.", "prompt: Do it well."))
    assert "-  prompt: Do it.\n+  prompt: Do it well." in refused()
    spec.write_text(was)
    script = spec.parent / "one.yaml"
    script.write_text(script.read_text().replace("'true'", "'false'"))
    assert "-- run: 'true'\n+- run: 'false'" in refused()
    lab.write_spec([mission("one", *steps, workspace=workspace)])
    (spec.parent / "shop" / "a.txt").write_text("as it is\n")
    changed = "workspace shop: its files have changed since the campaign began; written since: a.txt"
    assert changed in refused()
    # As it was, it may lie somewhere else.
    (spec.parent / "shop" / "a.txt").write_text("as it was\n")
    moved = spec.parent.rename(lab.folder / "moved")
    gone = ask(lab, "campaign", "resume", "--json")
    assert (gone.code, gone.json["error"]["code"]) == (2, "campaign.no-spec")
    assert ask(lab, "campaign", "resume", "--spec", str(moved / "spec.yaml")).code == 0


def test_chosen_trials_are_tried_once_more_and_what_comes_of_it_is_their_result(lab: Lab, gate: Path) -> None:
    failing = mission(
        "failing", {"run": f"cat {gate}"}, say_done(), probes=[{"kind": "headless_run", "command": "true"}]
    )
    spec = lab.write_spec([failing, *QUICK[:1]])
    lab.run(spec, is_unjudgeable_allowed=True)
    unknown = ask(lab, "retry", "--only", "nonsense", "--json")
    assert (unknown.code, unknown.json["error"]["code"]) == (2, "evidence.not-found")
    idle = ask(lab, "retry", "--only", "infra", "--json").json
    assert [run["runId"] for run in idle["runs"]] == [run.folder.name for run in RootPaths(lab.root).runs()]
    again = ask(lab, "retry", "--only", "failing", "lab", "--allow-unjudgeable", "--json").json
    told = [(each["attemptId"], each["isSuperseded"]) for each in again["attempts"]]
    assert told == [("failing.codex.r1.1", True), ("failing.codex.r1.2", False), ("quick0.codex.r1.1", False)]
    assert len(again["runs"]) == 2


def test_a_budget_stops_what_has_not_begun_and_what_was_measured_is_what_is_expected_of_the_next(lab: Lab) -> None:
    spec = lab.write_spec(QUICK[:3], schedule={"parallel": 1}, limits={"usd": 0.000001}, prices="prices.yaml")
    prices = {"version": 1, "since": "2026-11-01", "models": {"scripted": {"input": 2, "output": 10}}}
    (spec.parent / "prices.yaml").write_text(yaml.safe_dump(prices))
    result = lab.run(spec)
    assert result.how == "budget"
    again = ask(lab, "campaign", "resume")
    assert "its budget is used up: raise limits.usd and start a new campaign" in again.stdout
    assert "campaign resume" not in again.stdout
    with closing(sqlite3.connect(result.paths.ledger)) as reader:
        costs = reader.execute("select usd from attempt").fetchall()
        assert reader.execute("select ended from run").fetchall() == [("budget",), ("budget",)]
    assert 1 <= len(costs) < 3, "as many as had begun before it was known what the first one cost"
    assert all(usd > 0 for (usd,) in costs)
    dry = ask(lab, "run", str(spec), "--dry-run", "--json").json
    [flow] = dry["flows"]
    assert (flow["measured"], flow["usdEach"]) == (len(costs), pytest.approx(sum(usd for (usd,) in costs) / len(costs)))
    assert dry["usd"] == pytest.approx(3 * flow["usdEach"])
