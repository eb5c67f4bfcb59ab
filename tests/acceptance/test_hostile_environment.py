"""A machine that lacks something, refuses something or runs full: a code and what to do, never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.attempt.machine import State
from proctor.campaign.watch import CampaignWatcher
from proctor.evidence.layout import RootPaths
from proctor.ids import AttemptId
from tests.lab import Lab, mission, processes_with, say_done

pytestmark = pytest.mark.real_agent


def error_of(done: "subprocess.CompletedProcess[str]") -> str:
    assert "Traceback" not in done.stderr + done.stdout
    return str(json.loads(done.stdout)["error"]["code"])


def in_own_mounts(lab: Lab, prepare: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """The command in a mount namespace of its own, after a line of shell has changed the mounts there.

    What the namespace held goes with it, so the names of its files are told at the end of stderr.
    """
    script = f'{prepare} && {{ "$@"; code=$?; find {lab.root} -type f >&2; exit $code; }}'
    rights = [] if os.getuid() == 0 else ["--map-root-user"]
    return subprocess.run(
        ["unshare", "--mount", *rights, "sh", "-c", script, "sh", sys.executable, "-m", "proctor", *words],
        env={**os.environ, "PROCTOR_ROOT": str(lab.root)},
        cwd=lab.folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_missing_program_says_what_to_install(lab: Lab) -> None:
    spec = lab.write_spec([mission("any", say_done())])
    done = lab.proctor("run", str(spec), "--json", PROCTOR_CODEX="/nowhere/codex")
    assert (done.returncode, error_of(done)) == (3, "machine.binary-missing")
    assert "openai-codex-cli-bin" in done.stdout


@pytest.mark.requirement("runtime.compat")
def test_a_too_old_program_is_refused_and_says_what_to_install(lab: Lab, tmp_path: Path) -> None:
    lab.is_other_agent_allowed = True
    old = tmp_path / "codex"
    greeting = {"id": 1, "result": {"userAgent": "proctor/0.101.0 (Debian; x86_64)"}}
    old.write_text(f"#!/bin/sh\nread line\necho '{json.dumps(greeting)}'\ncat > /dev/null\n")
    old.chmod(0o755)
    spec = lab.write_spec([mission("any", say_done())])
    done = lab.proctor("run", str(spec), "--json", PROCTOR_CODEX=str(old))
    assert done.returncode == 3
    assert "machine.binary-too-old" in done.stdout
    assert "0.163.0" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_full_disk_ends_the_attempt_typed_and_without_a_seal(lab: Lab) -> None:
    lab.root.mkdir()
    nap = f"306.{os.getpid()}"
    flood = [{"say": {"text": "x" * 200 + " ", "repeat": 200_000}}]
    spec = lab.write_spec([mission("flood", {"run": f"sleep {nap} & true"}, *flood)], flow={"isolation": "process"})
    done = in_own_mounts(lab, f"mount -t tmpfs -o size=3m tmpfs {lab.root}", "run", str(spec), "--json")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "machine.disk-full" in done.stdout
    assert "Traceback" not in done.stderr
    assert "frames.jsonl" in done.stderr
    assert "seal.json" not in done.stderr
    assert processes_with(nap) == [], "the agent was stopped"


def test_a_read_only_folder_is_told(lab: Lab) -> None:
    lab.root.mkdir()
    spec = lab.write_spec([mission("any", say_done())])
    done = in_own_mounts(lab, f"mount -t tmpfs -o ro tmpfs {lab.root}", "run", str(spec), "--json")
    assert (done.returncode, error_of(done)) == (3, "machine.unwritable")


def test_a_temporary_folder_above_the_agents_home_is_refused(lab: Lab) -> None:
    spec = lab.write_spec([mission("any", say_done())], flow={"env": {"TMPDIR": "/"}})
    done = lab.proctor("run", str(spec), "--json")
    assert (done.returncode, error_of(done)) == (2, "policy.tmpdir-above-home")
    assert json.loads(done.stdout)["error"]["line"] is not None


def test_a_shared_server_with_full_access_is_refused(lab: Lab) -> None:
    flow = {"isolation": "shared", "sandbox": "danger-full-access"}
    done = lab.proctor("run", str(lab.write_spec([mission("any", say_done())], flow=flow)), "--json")
    assert (done.returncode, error_of(done)) == (2, "policy.shared-full-access")


def test_an_option_the_runtime_does_not_have_is_told_with_its_line(lab: Lab) -> None:
    flow = {"options": {"codex_app_server": {"no_such_option": 7}}}
    done = lab.proctor("run", str(lab.write_spec([mission("any", say_done())], flow=flow)), "--json")
    assert (done.returncode, error_of(done)) == (2, "spec.unknown-key")
    assert json.loads(done.stdout)["error"]["line"] is not None


def test_a_variable_that_the_runtime_sets_itself_is_refused(lab: Lab) -> None:
    flow = {"env": {"CODEX_HOME": "/somewhere/else"}}
    done = lab.proctor("run", str(lab.write_spec([mission("any", say_done())], flow=flow)), "--json")
    assert (done.returncode, error_of(done)) == (2, "policy.reserved-variable")


def test_a_record_of_an_agents_process_that_cannot_be_closed_takes_no_result_away(lab: Lab) -> None:
    class InTheWay(CampaignWatcher):
        def state_entered(self, attempt: AttemptId, state: State) -> None:
            if state is State.SETTLING:
                [run] = RootPaths(lab.root).runs()
                [runtime] = run.runtimes()
                runtime.record.mkdir()

    result = lab.run(lab.write_spec([mission("one", say_done())]), watcher=InTheWay())
    assert result.failure is not None
    assert (result.failure.code, result.how) == ("machine.unwritable", "done")
    status = json.loads(lab.proctor("campaign", "status", "--json").stdout)
    assert (status["ended"], status["settled"], status["outcomes"]) == ("done", 1, {"completed": 1})


def test_a_fault_in_a_script_is_told_before_anything_is_written(lab: Lab) -> None:
    spec = lab.write_spec([mission("any", {"rum": "echo typo"})])
    done = lab.proctor("run", str(spec), "--json")
    assert (done.returncode, error_of(done)) == (2, "spec.unknown-key")
    assert not lab.root.exists()
