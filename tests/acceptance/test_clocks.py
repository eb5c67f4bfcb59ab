"""Whatever the agent or its provider does, an attempt ends by our clocks, typed and sealed."""

import os
import threading
from typing import Any

import anyio.from_thread
import anyio.lowlevel
import pytest

from proctor.attempt.machine import State
from proctor.campaign.stops import StopSignals
from proctor.campaign.watch import CampaignWatcher
from proctor.event.outcome import Outcome
from proctor.ids import AttemptId
from tests.lab import Lab, jsonl, mission, processes_with, report_of, say_done, wait_until

pytestmark = pytest.mark.real_agent


@pytest.mark.requirement("attempt.clocks")
@pytest.mark.requirement("attempt.states")
@pytest.mark.parametrize(
    ("isolation", "sandbox", "nap"),
    [("shared", "workspace-write", "301.171"), ("process", "danger-full-access", "301.172")],
)
def test_a_turn_that_outlives_its_limit_ends_timed_out_and_leaves_no_child(
    lab: Lab, isolation: str, sandbox: str, nap: str
) -> None:
    napping = f"sleep {nap} & setsid env -i sleep {nap} & sleep {nap}"
    lab.run(
        lab.write_spec(
            [mission("nap", {"run": napping}, say_done(), expect={"outcome": "timed_out"})],
            flow={"isolation": isolation, "sandbox": sandbox},
            limits={"turn": "3s", "stall": "20s"},
        )
    )
    [paths] = lab.attempts().values()
    report = report_of(paths)
    assert (report.outcome, report.code, report.expectation.met) == (Outcome.TIMED_OUT, "limit.turn", True)
    assert processes_with(nap) == []
    [call] = jsonl(paths.tool_calls)
    assert (call["kind"], call.get("ok")) == ("command", False)
    lab.assert_all_evidence_is_valid()


def test_an_agent_that_hears_nothing_from_its_model_is_stalled(lab: Lab) -> None:
    lab.run(lab.write_spec([mission("mute", {"fault": "hang"})], limits={"stall": "2s"}))
    [paths] = lab.attempts().values()
    assert (report_of(paths).outcome, report_of(paths).code) == (Outcome.STALLED, "limit.stall")
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("attempt.clocks")
def test_the_attempts_clock_covers_its_probes_too(lab: Lab) -> None:
    nap = f"308.{os.getpid()}"
    probe = {"kind": "headless_run", "command": f"sleep {nap}", "timeout": "60s"}
    lab.run(lab.write_spec([mission("slow", say_done(), probes=[probe])], limits={"attempt": "2s"}))
    [paths] = lab.attempts().values()
    report = report_of(paths)
    assert (report.outcome, report.code, report.verified) == (Outcome.TIMED_OUT, "limit.attempt", None)
    assert processes_with(nap) == []
    lab.assert_all_evidence_is_valid()


@pytest.mark.trust
@pytest.mark.requirement("campaign.unjudged")
def test_agent_that_makes_its_probe_outlast_the_attempt_has_failed(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    nap = f"310.{os.getpid()}"
    probe = {"kind": "headless_run", "command": f"test -e made && sleep {nap}", "timeout": "60s"}
    flow = {"runtime": ["process"], "options": {"process": {"command": "touch made"}}}
    lab.run(lab.write_spec([mission("slow", say_done(), probes=[probe])], flow=flow, limits={"attempt": "4s"}))
    [paths] = lab.attempts().values()
    report = report_of(paths)
    assert (report.outcome, report.code) == (Outcome.TIMED_OUT, "limit.attempt")
    assert report.detail == "the attempt reached its time limit before the probes had judged the work"
    assert (report.verified, report.reason_codes) == (False, ("fails",))
    assert "did not end before the attempt reached its time limit" in report.reasons[0]
    assert processes_with(nap) == []
    for command in ("campaign", "report"), ("attempt", "explain", "slow.codex.r1.1"):
        assert "limit.attempt" in lab.proctor(*command).stdout
    lab.assert_all_evidence_is_valid()


class StopsWhilePreparing(CampaignWatcher):
    """Asks for a stop before the agent was asked anything."""

    def __init__(self, stops: StopSignals) -> None:
        self._stops = stops

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        if state is State.PREPARING:
            self._stops.one[attempt].set()


def test_an_attempt_that_is_stopped_while_a_probe_runs_ends_at_once_and_sealed(lab: Lab) -> None:
    nap = f"309.{os.getpid()}"
    probe = {"kind": "headless_run", "command": f"sleep {nap}", "timeout": "60s"}
    stops = StopSignals()
    # The limit bounds the check of the probe before the run, too.
    spec = lab.write_spec([mission("slow", say_done(), probes=[probe])], limits={"attempt": "2s"})
    lab.run(spec, stops=stops, watcher=StopsWhilePreparing(stops))
    [paths] = lab.attempts().values()
    assert (report_of(paths).outcome, report_of(paths).metrics.turns) == (Outcome.CANCELLED, 0)
    assert processes_with(nap) == []
    lab.assert_all_evidence_is_valid()


class StopsWhileJudging(CampaignWatcher):
    """Asks for a stop of everything when an attempt enters a state, once."""

    def __init__(self, stops: StopSignals, state: State) -> None:
        self._stops = stops
        self._state = state

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        if state is self._state:
            self._stops.stop_all()


@pytest.mark.requirement("campaign.resume")
@pytest.mark.parametrize("state", [State.SETTLING, State.PROBING])
def test_attempt_that_is_stopped_before_its_probes_have_judged_it_is_tried_again(lab: Lab, state: State) -> None:
    lab.is_other_agent_allowed = True
    gate = lab.folder / "gate"
    # On the agent's work the probe waits, so that it is always stopped while it runs.
    command = f"test -e made || exit 1; test -e {gate} || sleep 311.{os.getpid()}"
    probe = {"kind": "headless_run", "command": command, "timeout": "60s", "contain": "none"}
    flow = {"runtime": ["process"], "options": {"process": {"command": "touch made"}}}
    stops = StopSignals()
    spec = lab.write_spec([mission("task", say_done(), probes=[probe])], flow=flow)
    done = lab.run(spec, stops=stops, watcher=StopsWhileJudging(stops, state))
    [paths] = lab.attempts().values()
    report = report_of(paths)
    assert (report.outcome, report.code, report.verified) == (Outcome.CANCELLED, "run.cancelled", None)
    assert report.detail == "stopped before the probes had judged the work: asked to stop"
    gate.touch()
    [again] = lab.run(spec, resume=done.paths).attempts
    assert again.summary is not None
    assert (again.attempt_id, again.summary.verified) == ("task.codex.r1.2", True)
    lab.assert_all_evidence_is_valid()


class StopsDuringProbe(CampaignWatcher):
    """Asks for a stop of everything once a process with this text in its command runs after the agent."""

    def __init__(self, stops: StopSignals, text: str) -> None:
        self._stops = stops
        self._text = text

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        if state is State.PROBING:
            threading.Thread(target=self._stop, args=[anyio.lowlevel.current_token()]).start()

    def _stop(self, token: Any) -> None:
        wait_until(lambda: bool(processes_with(self._text)))
        anyio.from_thread.run_sync(self._stops.stop_all, token=token)


@pytest.mark.requirement("campaign.resume")
def test_attempt_whose_first_probe_failed_is_tried_again_if_the_next_is_stopped(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    gate, nap = lab.folder / "gate", f"312.{os.getpid()}"
    commands = "exit 1", f"test -e made && {{ test -e {gate} || sleep {nap}; }}"
    probes = [{"kind": "headless_run", "command": command, "timeout": "60s", "contain": "none"} for command in commands]
    flow = {"runtime": ["process"], "options": {"process": {"command": "touch made"}}}
    stops = StopSignals()
    spec = lab.write_spec([mission("task", say_done(), probes=probes)], flow=flow)
    done = lab.run(spec, stops=stops, watcher=StopsDuringProbe(stops, f"sleep\0{nap}"))
    [paths] = lab.attempts().values()
    report = report_of(paths)
    assert (report.outcome, report.code, report.verified) == (Outcome.CANCELLED, "run.cancelled", False)
    gate.touch()
    [again] = lab.run(spec, resume=done.paths).attempts
    assert again.summary is not None
    assert (again.attempt_id, again.summary.verified) == ("task.codex.r1.2", False)
    lab.assert_all_evidence_is_valid()
