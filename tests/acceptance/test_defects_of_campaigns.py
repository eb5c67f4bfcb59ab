"""What campaigns of the harness before us got wrong, by its number in their list, does not happen here.

R19 is in test_examples_run.py. R16 was an import of an agent's own log after the fact; there is none here to go wrong:
usage is heard while the agent works, and what is not understood of it is unknown, never nought.
"""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from proctor.contain.intent import LOCK
from proctor.evidence.layout import CampaignPaths, RootPaths
from tests.acceptance.telling import kill_in_the_middle, sealed, told
from tests.acceptance.test_many_at_once import OpensWhenAllAreIn
from tests.lab import Lab, mission, report_of, say_done, wait_until

pytestmark = pytest.mark.real_agent

MET = {"outcome": "completed"}
FIVE = [mission(f"m{number}", say_done(str(number)), expect=MET) for number in range(5)]


def campaigns(lab: Lab) -> list[CampaignPaths]:
    return sorted(RootPaths(lab.root).campaigns(), key=lambda campaign: campaign.folder.stat().st_ctime)


def waiting_for(gate: Path) -> dict[str, Any]:
    """A mission that ends when the gate is there."""
    command = {"command": f"until [ -e {gate} ]; do sleep 0.05; done", "wait": "60s"}
    return mission("slow", {"run": command}, say_done("slow"), expect=MET)


def coverage(lab: Lab, campaign: str) -> tuple[int, int]:
    score = told(lab, "campaign", "report", campaign)["score"]
    return score["results"], score["trials"]


@pytest.mark.requirement("campaign.publish-check")
def test_r8_a_second_run_was_published_with_no_results_and_here_has_all_of_its_own(lab: Lab) -> None:
    probes = [{"kind": "headless_run", "command": "cat out", "stdout": "1\n"}]
    missions = [mission(f"m{number}", {"run": "echo 1 > out"}, say_done(), probes=probes) for number in range(2)]
    spec = str(lab.write_spec(missions))
    for _ in range(2):
        told(lab, "campaign", "run", spec)
    for campaign in campaigns(lab):
        assert coverage(lab, campaign.folder.name) == (2, 2)
        assert told(lab, "campaign", "publish-check", campaign.folder.name)["ok"]


@pytest.mark.requirement("campaign.canary")
@pytest.mark.requirement("campaign.publish-check")
def test_r9_a_canary_used_missions_up_and_a_resume_dropped_what_was_before_and_here_all_is_covered(
    lab: Lab, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    spec = str(lab.write_spec([*FIVE, waiting_for(gate)], schedule={"parallel": 2}))
    told(lab, "campaign", "canary", spec, "--missions", "2")
    [canary] = campaigns(lab)
    tried = {paths.folder for run in RootPaths(lab.root).runs() for paths in run.attempts()}
    assert len(tried) == 2

    def all_but_the_slow_one() -> bool:
        here = {paths for run in RootPaths(lab.root).runs() for paths in run.attempts()}
        return sum(paths.seal.exists() for paths in here if paths.folder not in tried) == len(FIVE)

    kill_in_the_middle(lab, "campaign", "run", spec, when=all_but_the_slow_one)
    gate.touch()
    told(lab, "campaign", "resume")
    _, campaign = (each.folder.name for each in campaigns(lab))
    assert coverage(lab, campaign) == (6, 6)
    refused = told(lab, "campaign", "publish-check", canary.folder.name, exit_=4)
    assert not refused["ok"]


@pytest.mark.requirement("campaign.resume")
def test_r10_a_dead_owner_blocked_a_resume_for_two_minutes_and_here_nobody(lab: Lab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    spec = str(lab.write_spec([waiting_for(gate), *FIVE[:1]], schedule={"parallel": 1}))
    kill_in_the_middle(lab, "campaign", "run", spec, when=lambda: bool(lab.attempts()))
    [campaign] = campaigns(lab)
    assert not told(lab, "campaign", "publish-check", exit_=4)["ok"]
    # A lock is held by the kernel for the living. What a file says of the dead, or of a stranger, is nothing.
    (campaign.folder / LOCK).write_text(f'{{"pid": {os.getpid()}, "startTicks": 1, "bootId": "another"}}')
    gate.touch()
    told(lab, "campaign", "resume")
    assert coverage(lab, campaign.folder.name) == (2, 2)


def test_r16_usage_was_said_to_be_read_and_was_not_and_here_every_token_is_told(lab: Lab) -> None:
    spent = {**say_done("1"), "usage": {"input": 100, "cached": 40, "output": 10}}
    flows = [{"id": "server", "runtime": ["codex_app_server"]}, {"id": "exec", "runtime": ["codex_exec"]}]
    result = lab.run(lab.write_spec([mission("m", spent)], flows=flows))
    summaries = [each.summary for each in result.attempts]
    assert [each and each.tokens and each.tokens.total for each in summaries] == [110, 110]


@pytest.mark.requirement("schedule.pool")
def test_r20_missions_ran_one_after_another_and_here_six_of_two_flows_are_in_their_turns_at_once(
    lab: Lab, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    missions = [{**waiting_for(gate), "id": f"m{number}"} for number in range(3)]
    flows = [{"id": flow, "runtime": ["codex_app_server"]} for flow in ("one", "two")]
    result = lab.run(
        lab.write_spec(missions, flows=flows, schedule={"parallel": 6}), watcher=OpensWhenAllAreIn(gate, all_of=6)
    )
    assert gate.exists()
    assert [each.summary.outcome for each in result.attempts if each.summary is not None] == ["completed"] * 6


@pytest.mark.requirement("campaign.gates")
def test_r21_without_a_pair_gate_failures_counted_as_valid_and_here_never(lab: Lab) -> None:
    probes = [{"kind": "headless_run", "command": "cat out", "stdout": "1\n"}]
    said_no = {"say": 'PROCTOR-RESULT: {"done": false, "answer": ""}'}
    broken = {"fault": {"status": 400, "body": {"error": {"type": "invalid_request_error", "message": "no"}}}}
    spec = lab.write_spec(
        [
            mission("gives-up", said_no, expect={"verified": "yes"}, probes=probes),
            mission("no-model", broken, expect=MET, probes=probes),
        ],
        gates={"pair": False},
    )
    told(lab, "campaign", "run", str(spec), exit_=3)
    score = told(lab, "campaign", "report", exit_=3)["score"]
    # What the model's provider did says nothing of the agent, and is no result of its.
    assert (score["trials"], score["verified"]["scored"], score["verified"]["passed"]) == (2, 1, 0)
    refused = told(lab, "campaign", "publish-check", exit_=4)
    assert [reason["code"] for reason in refused["reasons"]] == ["publish.unscored"]


@pytest.mark.requirement("campaign.resume")
def test_r22_a_resume_that_lost_the_race_wrote_over_the_running_campaign_and_here_changes_nothing(
    lab: Lab, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    spec = str(lab.write_spec([*FIVE, waiting_for(gate)], schedule={"parallel": 2}))
    winner = lab.start("campaign", "run", spec)
    try:
        wait_until(lambda: len(sealed(lab)) == len(FIVE))
        [campaign] = campaigns(lab)
        before = {path.name: path.read_bytes() for path in campaign.folder.iterdir() if path.suffix in (".md", ".json")}
        lost = told(lab, "campaign", "resume", exit_=3)
        assert lost["error"]["code"] == "machine.locked"
        after = {path.name: path.read_bytes() for path in campaign.folder.iterdir() if path.suffix in (".md", ".json")}
        assert {name: after[name] for name in ("plan.json",)} == {name: before[name] for name in ("plan.json",)}
        assert after.keys() == before.keys(), "no report of a loser's"
        gate.touch()
        assert winner.wait(timeout=60) == 0
    finally:
        if winner.poll() is None:
            os.killpg(winner.pid, signal.SIGKILL)
            winner.wait(timeout=30)
    assert coverage(lab, campaign.folder.name) == (6, 6)


def test_r23_a_prompt_with_a_word_of_the_harness_in_it_was_marked_and_here_it_is_a_prompt(lab: Lab) -> None:
    words = "Trace the funnel: zcl feedback, proctor evidence, tool.calls.jsonl, expected answer."
    used = {"usage": {"input": 100, "output": 10}}
    lab.run(lab.write_spec([mission("a", {**say_done(), **used}), mission("b", {**say_done(), **used}, prompt=words)]))
    plain, marked = (report_of(paths) for _, paths in sorted(lab.attempts().items()))
    assert (marked.outcome, marked.code, marked.reasons, marked.expectation) == (
        plain.outcome,
        plain.code,
        plain.reasons,
        plain.expectation,
    )
    assert (marked.metrics.warnings, marked.metrics.errors) == (plain.metrics.warnings, plain.metrics.errors)


@pytest.mark.requirement("schedule.pool")
def test_r6_a_start_interval_was_raced_through_and_here_lies_between_any_two_starts(lab: Lab) -> None:
    spec = lab.write_spec(FIVE, repeats=2, schedule={"parallel": 10, "start_interval": "120ms"})
    result = lab.run(spec)
    with closing(sqlite3.connect(result.paths.ledger)) as ledger:
        at_ms = [at for (at,) in ledger.execute("select started_at_ms from attempt order by started_at_ms")]
    assert len(at_ms) == 10
    # Nine intervals lie between ten starts. A claim is told a moment after its start, and that may be a long one on a
    # busy machine: of the first by up to an interval, here. That each is kept exactly is shown under a fake clock.
    assert max(at_ms) - min(at_ms) >= 8 * 120
