"""What an agent causes is its failure, and what the machine causes is not: attacks, each with its honest result."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.evidence.summary import AttemptSummary
from tests.lab import Lab, mission, rows_of, say_done, wait_until

PROBE = {"kind": "headless_run", "command": ["grep", "-qx", "good", "out.txt"], "stdout": ""}
BAD, GOOD = "echo bad >out.txt", "echo good >out.txt"

Result = tuple[str | None, str | None, str | None]
"""Whether an attempt passed, failed or was not scored; its code; its bucket."""
SPOILED: Result = ("failed", "agent.workspace", "agent")


def command(id_: str, text: str, **flow: Any) -> dict[str, Any]:
    """A flow whose agent is a shell command."""
    return {
        "id": id_,
        "runtime": ["process"],
        "isolation": "process",
        "options": {"process": {"command": text}},
        **flow,
    }


def run_flows(lab: Lab, *flows: Mapping[str, Any], text: str = "a\n", **top: Any) -> dict[str, Result]:
    """Run a trial per flow, and return the results by flow."""
    lab.is_other_agent_allowed = True
    workspace = {"copy": lab.workspace("start", {"a.txt": text})}
    spec = lab.write_spec([mission("m", say_done(), probes=[PROBE], workspace=workspace)], flows=flows, **top)
    done = lab.proctor("run", str(spec))
    assert "run.harness" not in done.stderr, done.stderr
    return results_of(lab)


def results_of(lab: Lab) -> dict[str, Result]:
    """Return the attempt that counts of each flow's trial."""
    rows = [row for row in report_of(lab)["attempts"] if not row["isSuperseded"]]
    return {row["flowId"]: (result_of(row), row["code"], row["bucket"]) for row in rows}


def result_of(row: dict[str, Any]) -> str | None:
    """Return whether an attempt passed, failed or was not scored; None without a seal."""
    return None if row["summary"] is None else msgspec.convert(row["summary"], AttemptSummary).result


def report_of(lab: Lab) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(lab.proctor("campaign", "report", "--attempts", "--json").stdout)
    return report


def score_of(lab: Lab) -> tuple[int, int]:
    """Return how many results passed, and of how many."""
    score = report_of(lab)["score"]["verified"]
    return score["passed"], score["scored"]


DEEP = "i=0; while [ $i -lt 30 ]; do d=$(printf %0200d 0); mkdir $d; cd $d; i=$((i+1)); done; touch file"
ODD = r"mkfifo pipe; touch $'\xff\xfe'; mkdir -p a/b; rm a.txt; ln -s out.txt inner; ln -s /usr/bin/env env"


@pytest.mark.long
def test_agent_that_spoils_its_workspace_is_scored_as_a_failure_with_its_own_code(lab: Lab) -> None:
    found = run_flows(
        lab,
        command("plain", BAD),
        command("link", f"{BAD}; ln -s /etc/passwd passwd"),
        command("deep", f"{BAD}; {DEEP}"),
        command("sparse", f"{BAD}; truncate -s 9G big"),
        command("removed", f"{BAD}; rm -r $PWD", contain="none"),
        command("replaced", f"{BAD}; mv $PWD $TMPDIR/mine; ln -s $TMPDIR/mine $PWD", contain="none"),
        # What can be copied, or left out of a copy, does not matter.
        command("odd", f"{GOOD}; {ODD}"),
        command("venv", f"{GOOD}; mkdir -p .venv/bin; ln -s $HOME/python .venv/bin/python"),
    )
    assert found == {
        "plain": ("failed", None, None),
        "link": ("failed", None, None),
        "deep": SPOILED,
        "sparse": SPOILED,
        "removed": SPOILED,
        "replaced": SPOILED,
        "odd": ("passed", None, None),
        "venv": ("passed", None, None),
    }
    assert score_of(lab) == (2, 8)
    [link] = [row for row in report_of(lab)["attempts"] if row["flowId"] == "link"]
    assert "left out, because they lead out of the workspace: passwd" in link["summary"]["reasons"][0]
    lab.assert_all_evidence_is_valid()
    assert lab.proctor("campaign", "publish-check").returncode == 0


def test_agent_that_removes_the_folder_for_probes_is_judged(lab: Lab) -> None:
    folder = '"$PWD/../../../judging/$PROCTOR_ATTEMPT"'
    found = run_flows(
        lab,
        command("removed", f"{BAD}; rm -r {folder}", contain="none"),
        command("replaced", f"{GOOD}; rm -r {folder}; ln -s $TMPDIR {folder}", contain="none"),
    )
    assert found == {"removed": ("failed", None, None), "replaced": ("passed", None, None)}


@pytest.mark.requirement("schedule.recovery")
def test_agent_that_kills_itself_is_scored_as_a_failure_and_not_tried_again(lab: Lab) -> None:
    killed = ("failed", "agent.killed", "agent")
    found = run_flows(
        lab,
        command("kill", f"{BAD}; kill -9 $$"),
        command("term", f"{BAD}; kill -TERM $$"),
        command("child", f"{BAD}; sh -c 'kill -9 $PPID'; sleep 60"),
        schedule={"retries": 2, "backoff": "1ms"},
    )
    assert found == {"kill": killed, "term": killed, "child": killed}
    assert score_of(lab) == (0, 3)
    assert len(lab.attempts()) == 3
    assert lab.proctor("campaign", "publish-check").returncode == 0


@pytest.mark.real_agent
@pytest.mark.requirement("schedule.recovery")
def test_codex_cannot_escape_a_verdict(lab: Lab) -> None:
    steps = {
        "link": {"run": f"{BAD}; ln -s /etc/passwd passwd"},
        "kill": {"run": f"{BAD}; kill -9 -1; kill -9 $PPID"},
    }
    missions = [mission(name, step, say_done(), probes=[PROBE]) for name, step in steps.items()]
    full = {"sandbox": "danger-full-access", "isolation": "process"}
    flows = [{"id": "boxed", "runtime": ["codex_app_server"]}, {"id": "full", "runtime": ["codex_app_server"], **full}]
    lab.proctor("run", str(lab.write_spec(missions, flows=flows, schedule={"retries": 1, "backoff": "1ms"})))
    rows = report_of(lab)["attempts"]
    assert {row["attemptId"]: (result_of(row), row["code"], row["bucket"]) for row in rows} == {
        "link.boxed.r1.1": ("failed", None, None),
        "link.full.r1.1": ("failed", None, None),
        # Inside the sandbox, a command can kill only itself.
        "kill.boxed.r1.1": ("failed", None, None),
        "kill.full.r1.1": ("failed", "agent.killed", "agent"),
    }
    assert score_of(lab) == (0, 4)
    assert lab.proctor("campaign", "publish-check").returncode == 0


@pytest.mark.proctor_process
def test_time_for_which_proctor_was_stopped_counts_for_no_clock(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    started, gate = lab.folder / "started", lab.folder / "gate"
    waiting = f"touch {started}; until [ -e {gate} ]; do sleep 0.05; done; {GOOD}"
    spec = lab.write_spec(
        [mission("m", say_done(), probes=[PROBE])],
        flows=[command("patient", waiting, contain="none")],
        limits={"attempt": "6s", "turn": "6s", "stall": "6s"},
    )
    running = lab.start("run", str(spec))
    try:
        wait_until(started.exists)
        os.kill(running.pid, signal.SIGSTOP)
        until_s = time.monotonic() + 7
        wait_until(lambda: time.monotonic() > until_s)
        os.kill(running.pid, signal.SIGCONT)
        gate.touch()
        assert running.wait(timeout=60) == 0
    finally:
        running.kill()
        running.wait()
    assert results_of(lab) == {"patient": ("passed", None, None)}
    [paths] = lab.attempts().values()
    assert sum(b"proctor did not run" in msgspec.json.encode(row) for row in rows_of(paths)) == 1
    assert lab.proctor("campaign", "publish-check").returncode == 0


@pytest.fixture
def small_disk(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """A disk of 96 MiB and 5,000 files that holds the cache folder, and so all scratch. Only root can mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m,nr_inodes=5000", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not let this user mount a tmpfs")
    lab.env["XDG_CACHE_HOME"] = str(place)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.long
def test_agent_that_uses_up_the_scratch_disk_is_scored_as_a_failure(lab: Lab, small_disk: Path) -> None:
    fill = "head -c 500M /dev/zero >{}/big; echo bad >out.txt"
    used_up = ("failed", "agent.disk", "agent")
    flows = [
        command("workspace", fill.format(".")),
        command("tmp", fill.format("$TMPDIR")),
        command("home", fill.format("$HOME")),
        command("shared-home", fill.format("$HOME"), isolation="shared"),
        command("sparse", f"{BAD}; truncate -s 1G big"),
        command("files", f"{BAD}; seq 9999 | xargs touch"),
        command("deleted", f"{BAD}; exec 9>$TMPDIR/big; rm $TMPDIR/big; head -c 500M /dev/zero >&9; sleep 60"),
        command("modest", f"{GOOD}; head -c 1M /dev/zero >big"),
    ]
    found = run_flows(lab, *flows, schedule={"parallel": 1, "retries": 5, "backoff": "100ms"})
    # None of them keeps the room that the next one needs.
    assert len(lab.attempts()) == len(flows)
    assert found == {
        "workspace": used_up,
        "tmp": used_up,
        "home": used_up,
        "shared-home": used_up,
        "sparse": used_up,
        "files": used_up,
        "deleted": used_up,
        "modest": ("passed", None, None),
    }
    assert score_of(lab) == (1, 8)
    lab.assert_all_evidence_is_valid()
    assert lab.proctor("campaign", "publish-check").returncode == 0


@pytest.mark.long
@pytest.mark.requirement("schedule.recovery")
def test_scratch_disk_that_others_fill_is_infrastructure(lab: Lab, small_disk: Path) -> None:
    """One trial starts on a full disk. During another the disk fills up, and its agent fails because of that."""
    started, freed, ballast = lab.folder / "started", lab.folder / "freed", small_disk / "ballast"
    # It frees little at its end, so that there is no room for the workspace of the other trial.
    suffer = f"rm a.txt; touch {started}; until ! head -c 4K /dev/zero >>big; do sleep 0.02; done; exit 3"
    work = f"if [ -e {freed} ]; then {GOOD}; else {suffer}; fi"

    def fill() -> None:
        wait_until(started.exists)
        free = os.statvfs(small_disk)
        with ballast.open("wb") as file:
            # All but 1 MiB in one step: Proctor ends an attempt when it sees that the disk is nearly full.
            os.posix_fallocate(file.fileno(), 0, free.f_bfree * free.f_bsize - (1 << 20))
        subprocess.run(["sh", "-c", f"cat /dev/zero >>{ballast}"], capture_output=True)  # until nothing more fits

    filling = threading.Thread(target=fill)
    filling.start()
    flows = command("victim", work, contain="none"), command("late", GOOD)
    found = run_flows(lab, *flows, text="a" * 4_000_000, schedule={"parallel": 1})
    filling.join(timeout=30)
    infra = ("infra", "machine.disk-full", "infra")
    # Nothing could be written to start with the second one.
    assert found == {"victim": infra, "late": (None, *infra[1:])}
    assert score_of(lab) == (0, 0)
    assert lab.proctor("campaign", "publish-check").returncode == 4

    ballast.unlink()
    freed.touch()
    lab.proctor("retry", "--only", "infra")
    assert results_of(lab) == dict.fromkeys(("victim", "late"), ("passed", None, None))


@pytest.mark.proctor_process
@pytest.mark.requirement("schedule.recovery")
def test_memory_limit_under_which_an_agent_cannot_start_is_infrastructure(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    start = "exec python3 -c 'bytearray(8_000_000_000)'"
    flows = [
        command("starved", start),
        command("faulty", "kill -ABRT $$"),
        command("speaking", f"echo hello; {start}"),
        command("failing", f"{BAD}; exit 3"),
    ]
    spec = lab.write_spec([mission("m", say_done(), probes=[PROBE])], flows=flows)
    # The limit is Proctor's own, so that agents inherit it.
    limited = f"ulimit -v 4000000; exec {sys.executable} -m proctor run {spec}"
    env = {**os.environ, **lab.env, "PROCTOR_ROOT": str(lab.root)}
    subprocess.run(["bash", "-c", limited], env=env, cwd=lab.folder, capture_output=True, timeout=150)
    infra = ("infra", "machine.exhausted", "infra")
    assert results_of(lab) == {
        "starved": infra,
        # It cannot be told apart from a program that gets no memory: not scored, and not published.
        "faulty": infra,
        "speaking": ("failed", "agent.exit-status", "agent"),
        "failing": ("failed", "agent.exit-status", "agent"),
    }
    [starved] = [row["detail"] for row in report_of(lab)["attempts"] if row["flowId"] == "starved"]
    assert "RLIMIT_AS is 4096000000 bytes" in starved
    assert "MemoryError" in starved
    assert lab.proctor("campaign", "publish-check").returncode == 4


def test_agent_that_only_says_that_memory_ran_out_is_scored(lab: Lab) -> None:
    found = run_flows(lab, command("liar", f"{BAD}; echo 'Cannot allocate memory' >&2; exit 1"))
    assert found == {"liar": ("failed", "agent.exit-status", "agent")}


@pytest.mark.long
def test_agent_that_prints_without_end_is_stopped_and_its_evidence_sealed(lab: Lab) -> None:
    late = command("late", f"{BAD}; head -c 3000000 /dev/zero | tr '\\0' x")
    flows = command("endless", f"{BAD}; yes"), command("quiet", GOOD), late
    found = run_flows(lab, *flows, limits={"evidence": "2MB"})
    # Whether the limit is noticed before its turn ends or after, it is judged.
    assert found.pop("late")[0] == "failed"
    assert found == {"endless": ("failed", "limit.evidence", "agent"), "quiet": ("passed", None, None)}
    [endless] = [paths for name, paths in lab.attempts().items() if ".endless." in name]
    assert endless.frames.stat().st_size > 1_000_000
    lab.assert_all_evidence_is_valid()
    assert lab.proctor("campaign", "publish-check").returncode == 0


@pytest.mark.parametrize(
    ("size", "problem"),
    [
        ("lots", "`lots` is not a size: write it like 5GB, 500MB or 2GiB"),
        ("0B", "`0B` is out of range: write a size from 1MB to 2GiB"),
        ("5GiB", "`5GiB` is out of range: write a size from 1MB to 2GiB"),
    ],
)
def test_invalid_limit_of_evidence_is_refused_when_the_spec_is_loaded(lab: Lab, size: str, problem: str) -> None:
    spec = lab.write_spec([mission("m", say_done())], limits={"evidence": size})
    refused = lab.proctor("run", str(spec))
    assert refused.returncode == 2
    assert "limits.evidence" in refused.stderr
    assert problem in " ".join(refused.stderr.split())
