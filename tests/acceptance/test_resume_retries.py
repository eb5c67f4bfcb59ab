"""Attempts that fail by nobody's verdict are made again, each by itself and within limits, on the real agent."""

import os
import signal
import sys
from pathlib import Path

import pytest

from proctor.attempt.machine import State
from proctor.campaign.run import CampaignResult
from proctor.campaign.stops import StopSignals
from proctor.campaign.watch import CampaignWatcher
from proctor.contain.bundled import CODEX_WHEEL, bundled_file
from proctor.event.model import Event, ToolBegan
from proctor.evidence.layout import RootPaths
from proctor.ids import AttemptId, RuntimeId
from tests.lab import Lab, mission, processes_with, runner_ref_of, say_done
from tests.plugins import LIKE_CODEX, install

pytestmark = pytest.mark.real_agent

Told = tuple[str, str, str | None]


def told(result: CampaignResult) -> list[Told]:
    """How each attempt of the run ended."""
    return [
        (each.attempt_id, each.summary.outcome.value, each.summary.code)
        for each in result.attempts
        if each.summary is not None
    ]


def until(gate: Path) -> dict[str, str]:
    return {"run": f"until [ -e {gate} ]; do sleep 0.05; done"}


class KillsTheAgentOnce(CampaignWatcher):
    """kill -9 of the app-server when so many shells run in it; then the gate is opened."""

    def __init__(self, gate: Path, *, shells: int) -> None:
        self._gate = gate
        self._shells = shells

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        if isinstance(event, ToolBegan) and str(self._gate) in str(event.input) and not self._gate.exists():
            self._shells -= 1
            if not self._shells:
                for pid in processes_with("app-server\0--listen"):
                    environ = Path(f"/proc/{pid}/environ").read_bytes()
                    is_ours = f"CODEX_HOME={os.environ['XDG_CACHE_HOME']}/".encode() in environ
                    if is_ours and Path(f"/proc/{pid}/exe").readlink().name == "codex":
                        os.kill(pid, signal.SIGKILL)
                # Only now: on a slow machine a turn could end before its agent was found and killed.
                self._gate.touch()


@pytest.mark.requirement("schedule.recovery")
def test_a_shared_runtime_that_dies_is_replaced_and_only_its_own_attempts_are_made_again(
    lab: Lab, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    missions = [
        mission("before", say_done()),
        mission("one", until(gate), say_done()),
        mission("two", until(gate), say_done()),
        mission("after", say_done()),
    ]
    spec = lab.write_spec(missions, schedule={"parallel": 2, "retries": 1, "backoff": "10ms"})
    result = lab.run(spec, watcher=KillsTheAgentOnce(gate, shells=2))
    assert told(result) == [
        ("before.codex.r1.1", "completed", None),
        ("one.codex.r1.1", "crashed", "peer.killed"),
        ("one.codex.r1.2", "completed", None),
        ("two.codex.r1.1", "crashed", "peer.killed"),
        ("two.codex.r1.2", "completed", None),
        ("after.codex.r1.1", "completed", None),
    ]
    assert result.how == "done"
    [run] = RootPaths(lab.root).runs()
    assert len(list(run.runtimes())) == 2
    lab.assert_all_evidence_is_valid()
    assert lab.run(spec, resume=result.paths).attempts == ()


@pytest.fixture
def healthy(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file is there, the runtime `failing` is Codex; without it, it does not start."""
    healthy, program = tmp_path / "healthy", tmp_path / "codex"
    healthy.touch()
    program.write_text(
        f'#!/bin/bash\n[ -e {healthy} ] || exit 3\nexec "{bundled_file(CODEX_WHEEL, "bin/codex")}" "$@"\n'
    )
    program.chmod(0o755)
    failing = LIKE_CODEX.format(id="failing") + (
        "from pathlib import Path\nfrom proctor.runtime.executable import identify\n"
        f'Like.locate = lambda self, options: identify(Path("{program}"), source="override", install="nothing")\n'
    )
    install(lab.folder / "site", "failing", points={"failing": "failing:RUNTIME"}, modules={"failing": failing})
    monkeypatch.syspath_prepend(lab.folder / "site")
    monkeypatch.delitem(sys.modules, "failing", raising=False)  # that of another test
    (lab.folder / "proctor.toml").write_text('plugins = ["failing"]\n')
    lab.is_other_agent_allowed = True
    return healthy


@pytest.mark.requirement("runtime.strategy.fallback")
def test_a_runtime_that_no_longer_starts_gives_way_to_the_next_in_mid_run(lab: Lab, healthy: Path) -> None:
    class FallsIll(CampaignWatcher):
        def state_entered(self, attempt: AttemptId, state: State) -> None:
            if state is State.SETTLING:
                healthy.unlink(missing_ok=True)

    flow = {"runtime": ["failing", "codex_app_server"], "isolation": "process"}
    spec = lab.write_spec(
        [mission("one", say_done()), mission("two", say_done())],
        flow=flow,
        schedule={"parallel": 1, "retries": 5, "backoff": "10ms"},
    )
    result = lab.run(spec, watcher=FallsIll())
    assert told(result) == [
        ("one.codex.r1.1", "completed", None),
        *((f"two.codex.r1.{n}", "refused", "peer.hangup") for n in (1, 2, 3)),
        ("two.codex.r1.4", "completed", None),
    ]
    fallen = runner_ref_of(lab.attempts()["two.codex.r1.4"])
    assert fallen.runtime_id == "codex_app_server"
    assert [(each["runtime"], each["code"]) for each in fallen.facts["resolution"].value["refused"]] == [
        ("failing", "runtime.degraded")
    ]
    assert [warning for warning in result.warnings if "failing was skipped" in warning]


@pytest.mark.requirement("runtime.strategy.fallback")
def test_an_attempt_that_is_under_way_when_its_runtime_falls_runs_on_the_runtime_of_its_record(
    lab: Lab, healthy: Path, tmp_path: Path
) -> None:
    fallen = tmp_path / "fallen"

    class Falls(CampaignWatcher):
        """Ill as soon as one waits in its hook; that one goes on when another has fallen to the next runtime."""

        def started(self, attempt: AttemptId, *, runtime_id: RuntimeId) -> None:
            if attempt == "slow.codex.r1.1":
                healthy.unlink()
            if runtime_id == "codex_app_server":
                fallen.touch()

    hook = {"before": f"until [ -e {fallen} ]; do sleep 0.05; done", "timeout": "30s"}
    spec = lab.write_spec(
        [mission("first", say_done()), mission("slow", say_done(), hooks=hook), mission("quick", say_done())],
        flow={"runtime": ["failing", "codex_app_server"], "isolation": "process"},
        schedule={"parallel": 2, "retries": 5, "backoff": "10ms"},
    )
    result = lab.run(spec, watcher=Falls())
    runtimes = {name: runner_ref_of(paths).runtime_id for name, paths in lab.attempts().items()}
    ends = {name: end for name, end, _ in told(result)}
    assert (runtimes["slow.codex.r1.1"], ends["slow.codex.r1.1"]) == ("failing", "refused")
    assert (runtimes["slow.codex.r1.2"], ends["slow.codex.r1.2"]) == ("codex_app_server", "completed")
    assert result.how == "done"


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"mission": "700ms"}, "limit.mission"),
        ({"campaign": "700ms"}, "limit.campaign"),
        ({"tokens": 10}, "limit.tokens"),
    ],
)
def test_what_reaches_a_limit_is_ended_with_its_code(
    lab: Lab, tmp_path: Path, limits: dict[str, object], code: str
) -> None:
    # The agent tells what a step used when it is over.
    nap = mission("nap", {"run": "true"}, {"run": f"until [ -e {tmp_path}/never ]; do sleep 0.05; done"}, say_done())
    spec = lab.write_spec([nap], limits=limits, schedule={"retries": 3})
    result = lab.run(spec)
    assert told(result) == [("nap.codex.r1.1", "timed_out", code)]
    assert result.how == ("limit" if code == "limit.campaign" else "done")
    lab.assert_all_evidence_is_valid()


class Drains(CampaignWatcher):
    """Lets nothing new begin as soon as one attempt works."""

    def __init__(self, stops: StopSignals) -> None:
        self._stops = stops

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        if state is State.TURN_RUNNING:
            self._stops.drain.set()


def test_what_was_drained_and_then_stopped_is_gone_on_with_each_time(lab: Lab) -> None:
    spec = lab.write_spec([mission(name, say_done()) for name in "abc"], schedule={"parallel": 1})
    stops = StopSignals()
    first = lab.run(spec, stops=stops, watcher=Drains(stops))
    assert (told(first), first.how) == ([("a.codex.r1.1", "completed", None)], "drained")
    stops = StopSignals()

    class StopsAll(CampaignWatcher):
        def state_entered(self, attempt: AttemptId, state: State) -> None:
            if state is State.SESSION_STARTING:
                stops.stop_all()

    second = lab.run(spec, stops=stops, watcher=StopsAll(), resume=first.paths)
    assert (told(second), second.how) == ([("b.codex.r1.1", "cancelled", "run.cancelled")], "stopped")
    third = lab.run(spec, resume=first.paths)
    assert told(third) == [("b.codex.r1.2", "completed", None), ("c.codex.r1.1", "completed", None)]
    assert third.how == "done"
