"""What an agent causes is its failure, and what the machine causes is not: attacks, each with its honest result."""

import json
import os
import signal
import time
from collections.abc import Mapping
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


def run_flows(lab: Lab, *flows: Mapping[str, Any], **top: Any) -> dict[str, Result]:
    """Run a trial per flow, and return the result of each attempt by its id without mission and repeat."""
    lab.is_other_agent_allowed = True
    workspace = {"copy": lab.workspace("start", {"a.txt": "a\n"})}
    spec = lab.write_spec([mission("m", say_done(), probes=[PROBE], workspace=workspace)], flows=flows, **top)
    done = lab.proctor("run", str(spec))
    assert "run.harness" not in done.stderr, done.stderr
    return results_of(lab)


def results_of(lab: Lab) -> dict[str, Result]:
    rows = report_of(lab)["attempts"]
    return {f"{row['flowId']}.{row['n']}": (result_of(row), row["code"], row["bucket"]) for row in rows}


def result_of(row: dict[str, Any]) -> str | None:
    """Return whether an attempt passed, failed or was not scored; None without a seal."""
    return None if row["summary"] is None else msgspec.convert(row["summary"], AttemptSummary).result


def report_of(lab: Lab) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(lab.proctor("campaign", "report", "--json").stdout)
    return report


def score_of(lab: Lab) -> tuple[int, int]:
    """Return how many results passed, and of how many."""
    score = report_of(lab)["score"]["verified"]
    return score["passed"], score["scored"]


DEEP = "i=0; while [ $i -lt 18 ]; do d=$(printf %0200d 0); mkdir $d; cd $d; i=$((i+1)); done; touch file"
ODD = r"mkfifo pipe; touch $'\xff\xfe'; mkdir -p a/b; rm a.txt; ln -s out.txt inner; ln -s /usr/bin/env env"


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
    )
    assert found == {
        "plain.1": ("failed", None, None),
        "link.1": SPOILED,
        "deep.1": SPOILED,
        "sparse.1": SPOILED,
        "removed.1": SPOILED,
        "replaced.1": SPOILED,
        "odd.1": ("passed", None, None),
    }
    assert score_of(lab) == (1, 7)
    [link] = [row for row in report_of(lab)["attempts"] if row["flowId"] == "link"]
    assert link["detail"] == "passwd is a link that leads out of the workspace: its target is not part of the evidence"
    assert link["summary"]["reasons"] == [f"probe 0 (headless_run): not run: {link['detail']}"]
    lab.assert_all_evidence_is_valid()
    assert lab.proctor("campaign", "publish-check").returncode == 0


def test_agent_that_removes_the_folder_for_probes_is_judged(lab: Lab) -> None:
    folder = '"$(dirname "$PWD")"/probes'
    found = run_flows(
        lab,
        command("removed", f"{BAD}; rm -r {folder}", contain="none"),
        command("replaced", f"{GOOD}; rm -r {folder}; ln -s $TMPDIR {folder}", contain="none"),
    )
    assert found == {"removed.1": ("failed", None, None), "replaced.1": ("passed", None, None)}


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
    assert found == {"kill.1": killed, "term.1": killed, "child.1": killed}
    assert score_of(lab) == (0, 3)
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
        "link.boxed.r1.1": SPOILED,
        "link.full.r1.1": SPOILED,
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
    assert results_of(lab) == {"patient.1": ("passed", None, None)}
    [paths] = lab.attempts().values()
    assert sum(b"proctor did not run" in bytes(row.frame) for row in rows_of(paths) if row.dir == "self") == 1
    assert lab.proctor("campaign", "publish-check").returncode == 0
