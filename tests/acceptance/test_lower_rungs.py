"""The real Codex on the lower rungs: kill -9 of Proctor leaves nothing, an `env -i setsid` grandchild included."""

import os
import signal
from pathlib import Path

import pytest

from proctor.contain.ladder import FORCE_VARIABLE
from tests.lab import Lab, mission, processes_with, runner_ref_of, say_done, wait_until
from tests.transport.ways import HAS_CGROUP

pytestmark = pytest.mark.real_agent

ways = pytest.mark.parametrize("way", [*(["cgroup"] if HAS_CGROUP else []), "warden"])


@ways
@pytest.mark.requirement("attempt.no-orphans")
def test_nothing_is_left_after_kill_nine(lab: Lab, tmp_path: Path, way: str) -> None:
    nap = f"305.{os.getpid()}{len(way)}"
    lab.env = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        FORCE_VARIABLE: way,
    }
    napping = f"sleep {nap} & setsid env -i sleep {nap} & sleep {nap}"
    spec = lab.write_spec(
        [mission("nap", {"run": napping}, say_done())],
        flow={"isolation": "process", "sandbox": "danger-full-access"},
    )
    victim = lab.start("run", str(spec))
    try:
        wait_until(lambda: len(processes_with(f"sleep\0{nap}")) >= 3)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(timeout=10)
        # Before any other Proctor is started.
        wait_until(lambda: processes_with(f"sleep\0{nap}") == [], deadline_s=10.0)
        assert processes_with(nap) == []
    finally:
        if victim.poll() is None:
            victim.kill()
            victim.wait(timeout=10)


@ways
@pytest.mark.requirement("attempt.no-orphans")
def test_the_agents_own_sandbox_works_and_nothing_outlives_its_attempt(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv(FORCE_VARIABLE, way)
    nap = f"306.{os.getpid()}{len(way)}"
    work = mission("work", {"run": f"echo hello > made; setsid env -i sleep {nap} & cat made"}, say_done())
    lab.run(lab.write_spec([work], flow={"isolation": "process", "sandbox": "workspace-write"}))

    assert processes_with(f"sleep\0{nap}") == []
    [paths] = lab.attempts().values()
    fact = runner_ref_of(paths).facts["containment"].value
    assert (fact["variant"], fact["rung"]) == (way, 2 if way == "cgroup" else 3)
    assert "+hello" in paths.workspace_diff.read_text()
    lab.assert_all_evidence_is_valid()
