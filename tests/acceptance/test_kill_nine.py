"""kill -9 of Proctor in the middle of a turn: nothing it started lives on, and what it wrote reads as partial."""

import json
import os
import signal
from pathlib import Path

import pytest

from proctor.contain.bundled import CODEX_WHEEL, bundled_file
from tests.lab import Lab, mission, processes_with, say_done, wait_until

pytestmark = pytest.mark.real_agent


def agents_of(marker: Path) -> list[int]:
    """The app-servers whose home lies under this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"CODEX_HOME={marker}".encode() in environ and b"app-server" in command and b"/codex\0" in command:
                found.append(int(entry.name))
    return found


def that_ignores_eof(file: Path) -> Path:
    """The real Codex, behind an input that does not end when ours does."""
    file.write_text(f'#!/bin/bash\nexec "{bundled_file(CODEX_WHEEL, "bin/codex")}" "$@" < <(cat; exec sleep 304)\n')
    file.chmod(0o755)
    return file


@pytest.mark.requirement("attempt.no-orphans")
@pytest.mark.requirement("evidence.crash-safe")
@pytest.mark.parametrize("agent", ["running", "stopped", "ignores-eof"])
@pytest.mark.parametrize(("isolation", "sandbox"), [("shared", "workspace-write"), ("process", "danger-full-access")])
def test_nothing_is_left_and_the_record_reads_as_partial(
    lab: Lab, tmp_path: Path, agent: str, isolation: str, sandbox: str
) -> None:
    cache, state = tmp_path / "cache", tmp_path / "state"
    lab.env = {"XDG_CACHE_HOME": str(cache), "XDG_STATE_HOME": str(state)}
    nap = f"302.{os.getpid()}{len(agent)}{len(sandbox)}"
    napping = f"sleep {nap} & setsid env -i sleep {nap} & sleep {nap}"
    if agent == "ignores-eof":
        lab.env["PROCTOR_CODEX"] = str(that_ignores_eof(tmp_path / "codex"))
        lab.is_other_agent_allowed = True
    spec = lab.write_spec(
        [mission("nap", {"run": napping}, say_done())], flow={"isolation": isolation, "sandbox": sandbox}
    )
    # A second Proctor with the same state folder, in the middle of its own turn, is not to be touched.
    bystander_lab = Lab(tmp_path / "bystander", env={**lab.env, "XDG_CACHE_HOME": str(tmp_path / "other-cache")})
    bystander_lab.folder.mkdir()
    quiet_nap = f"303.{os.getpid()}{len(agent)}{len(sandbox)}"
    bystander_spec = bystander_lab.write_spec([mission("quiet", {"run": f"sleep {quiet_nap}"}, say_done())])
    bystander = bystander_lab.start("run", str(bystander_spec))
    victim = lab.start("run", str(spec))
    try:
        wait_until(lambda: len(processes_with(f"sleep\0{nap}")) >= 3 and bool(processes_with(f"sleep\0{quiet_nap}")))
        wait_until(lambda: any(nap.encode() in paths.frames.read_bytes() for paths in lab.attempts().values()))
        agents = agents_of(cache)
        assert agents
        if agent == "stopped":
            for pid in agents:
                os.kill(pid, signal.SIGSTOP)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(timeout=10)
        lab.proctor("doctor", "--json")
        wait_until(lambda: processes_with(f"sleep\0{nap}") == [] and agents_of(cache) == [], deadline_s=2.0)
        assert processes_with(f"sleep\0{quiet_nap}") != [], "the second Proctor's work goes on"
        assert bystander.poll() is None

        [paths] = lab.attempts().values()
        checked = lab.proctor("validate", "--strict", str(paths.folder), "--json")
        assert checked.returncode == 4, checked.stdout + checked.stderr
        assert "evidence.partial" in checked.stdout
        [row] = json.loads(lab.proctor("attempt", "list", "--json").stdout)["attempts"]
        assert (row["state"], row["summary"]) == ("partial", None)
        assert nap in lab.proctor("attempt", "explain", str(paths.folder)).stdout, "what was read before is told"
    finally:
        for process in (victim, bystander):
            if process.poll() is None:
                # After one signal it would let the running turn finish; the second cancels that.
                os.killpg(process.pid, signal.SIGTERM)
                os.killpg(process.pid, signal.SIGINT)
                process.wait(timeout=30)
    wait_until(lambda: processes_with(f"sleep\0{quiet_nap}") == [], deadline_s=10.0)
