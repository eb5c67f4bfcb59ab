"""Hooks around the attempts of a real agent: what they are given, what they say, and what follows when they fail."""

import json
import os
from pathlib import Path

import pytest

from proctor.attempt import hooks
from proctor.attempt.machine import State
from proctor.campaign.stops import StopSignals
from proctor.campaign.watch import CampaignWatcher
from proctor.event.outcome import Outcome
from proctor.event.row import HookEnded
from proctor.event.supervisor_events import decode_supervisor_row
from proctor.evidence.layout import AttemptPaths
from proctor.ids import AttemptId
from tests.lab import Lab, mission, processes_with, report_of, rows_of, say_done
from tests.made_once import made_once, session_number

pytestmark = pytest.mark.real_agent

LEFT = f"4815.{session_number()}"
"""Seconds that no process outside this test session sleeps."""
MEDDLE = "echo three > $PROCTOR_WORKSPACE/a.txt"
TELL = "import json, os; print(json.dumps({**os.environ, 'cwd': os.getcwd()}))"
TOLD = "PROCTOR_CAMPAIGN PROCTOR_MISSION PROCTOR_FLOW PROCTOR_ATTEMPT PROCTOR_WORKSPACE PROCTOR_PHASE".split()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """One run: every way in which hooks go well or wrong, each on a mission of its own."""
    return Lab(made_once(tmp_path_factory, "hooks", _run_with_hooks))


def _run_with_hooks(folder: Path) -> None:
    lab = Lab(folder)
    patch = {"patch": {"file": "a.txt", "old": "one", "new": "two"}}
    steps = ({"say": "I do it.", **patch}, say_done())
    workspace = {"copy": "tree"}
    lab.workspace("tree", {"a.txt": "one\n"})
    probe = {"kind": "headless_run", "command": ["cat", "a.txt"], "stdout": "two\n"}
    hooks = {
        "own": {"before": ["python3", "-c", TELL], "after": f"cat $PROCTOR_WORKSPACE/a.txt; sleep {LEFT} & disown"},
        "unmet": {"before": "echo no database >&2; exit 3"},
        "slow": {"before": f"setsid sleep {LEFT} & sleep {LEFT}", "timeout": "500ms"},
        "lost": {"before": ["no-such-program"]},
        "meddler": {"before": MEDDLE},
        "late": {"after": "echo four > $PROCTOR_WORKSPACE/a.txt; echo $HOOK_PASSWORD; exit 4"},
    }
    missions = [mission(name, *steps, workspace=workspace, probes=[probe], hooks=each) for name, each in hooks.items()]
    missions.append(mission("all", *steps, workspace=workspace, probes=[probe]))
    flow = {"forward": ["HOOK_PASSWORD"]}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOOK_PASSWORD", "swordfish-77")
        patched.setenv("NOT_FOR_HOOKS", "mine")
        lab.run(lab.write_spec(missions, flow=flow, hooks={"before": "true"}, schedule={"parallel": 3}))


def attempt(lab: Lab, name: str) -> AttemptPaths:
    return lab.attempts()[f"{name}.codex.r1.1"]


def hooks_of(paths: AttemptPaths) -> list[HookEnded]:
    return [
        seen
        for row in rows_of(paths)
        if row.dir == "self" and isinstance(seen := decode_supervisor_row(row), HookEnded)
    ]


@pytest.mark.requirement("suite.run")
def test_hooks_run_around_an_attempt_with_its_names_and_nothing_else_of_ours(lab: Lab) -> None:
    own = attempt(lab, "own")
    before, after = hooks_of(own)
    seen = json.loads(before.stdout_tail)
    assert {name: seen[name] for name in TOLD if name != "PROCTOR_WORKSPACE"} == {
        "PROCTOR_CAMPAIGN": seen["PROCTOR_CAMPAIGN"],
        "PROCTOR_MISSION": "own",
        "PROCTOR_FLOW": "codex",
        "PROCTOR_ATTEMPT": "own.codex.r1.1",
        "PROCTOR_PHASE": "before",
    }
    assert Path(seen["cwd"]) == lab.folder / "spec"
    assert "NOT_FOR_HOOKS" not in seen
    assert (after.phase, after.stdout_tail, after.problem) == ("after", "two\n", None)
    assert (report_of(own).outcome, report_of(own).verified) == (Outcome.COMPLETED, True)


def test_the_campaigns_hooks_are_those_of_a_mission_that_has_none(lab: Lab) -> None:
    [only] = hooks_of(attempt(lab, "all"))
    assert (only.phase, only.argv, only.problem) == ("before", ("bash", "-c", "true"), None)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("unmet", "bash -c 'echo no database >&2; exit 3': it exited with 3: no database"),
        ("slow", f"bash -c 'setsid sleep {LEFT} & sleep {LEFT}': it did not end within 0.5 s"),
        ("lost", "no-such-program: there is no program no-such-program on PATH"),
        (
            "meddler",
            f"bash -c '{MEDDLE}': it changed the workspace, which only the agent may change",
        ),
    ],
)
def test_a_hook_that_fails_before_keeps_the_agent_from_being_asked(lab: Lab, name: str, why: str) -> None:
    paths = attempt(lab, name)
    report = report_of(paths)
    assert (report.outcome, report.code, report.bucket, report.detail) == (
        Outcome.REFUSED,
        "hook.failed",
        "harness",
        why,
    )
    assert report.metrics.turns == 0


def test_a_hook_that_fails_after_is_a_warning_and_changes_nothing_that_was_found(lab: Lab) -> None:
    late = attempt(lab, "late")
    report = report_of(late)
    assert (report.outcome, report.code, report.verified) == (Outcome.COMPLETED, None, True)
    assert "+two" in late.workspace_diff.read_text()
    assert "four" not in late.workspace_diff.read_text()
    [hook] = hooks_of(late)
    assert (hook.exit_code, hook.stdout_tail) == (4, "[redacted:HOOK_PASSWORD]\n")
    told = lab.proctor("attempt", "explain", str(late.folder)).stdout
    assert "Hooks" in told
    assert "failed" in told


def test_nothing_that_a_hook_started_is_left_and_the_evidence_is_whole(lab: Lab) -> None:
    assert processes_with(LEFT) == []
    lab.assert_all_evidence_is_valid()


class _StopsInTheTurn(CampaignWatcher):
    def __init__(self, stops: StopSignals) -> None:
        self._stops = stops

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        if state is State.TURN_RUNNING:
            self._stops.one[attempt].set()


def test_a_stop_does_not_wait_for_the_whole_time_of_a_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "STOP_S", 0.5)
    lab, stops = Lab(tmp_path), StopSignals()
    nap = f"4816.{os.getpid()}"
    own = {"after": f"sleep {nap}", "timeout": "40s"}
    lab.run(lab.write_spec([mission("own", {"fault": "hang"}, hooks=own)]), stops=stops, watcher=_StopsInTheTurn(stops))
    paths = attempt(lab, "own")
    [hook] = hooks_of(paths)
    assert (report_of(paths).outcome, hook.problem) == (
        Outcome.CANCELLED,
        "it did not end within 0.5 s of the stop request",
    )
    assert processes_with(nap) == []
    lab.assert_all_evidence_is_valid()


def test_the_attempts_clock_stands_while_a_hook_runs(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    late = mission("late", say_done(), hooks={"before": "sleep 4; exit 3"})
    lab.run(lab.write_spec([late], limits={"attempt": "3s"}, schedule={"retries": 0}))
    assert report_of(attempt(lab, "late")).code == "hook.failed"
