"""`proctor attempt cancel` ends one attempt of a running campaign, and only that one, on the real agent."""

import getpass
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.event.outcome import Outcome
from proctor.event.row import CancelRequested, Operator
from proctor.event.supervisor_events import decode_supervisor_row
from proctor.evidence.layout import RootPaths
from tests.acceptance.test_resume import campaign_of, ledger, running
from tests.lab import Lab, mission, processes_with, report_of, rows_of, runner_ref_of, say_done, wait_until
from tests.runtime.process.commands import flow, run_flows
from tests.surface.conftest import ask

SLOW, OTHER = "slow.codex.r1.1", "other.codex.r1.1"
PROBE = {"kind": "headless_run", "command": ["cat", "done.txt"], "stdout": "done\n"}

ATTACK = """
import sys
from pathlib import Path
from proctor.campaign.control import CancelRequest, request_cancel
from proctor.evidence.layout import RootPaths
[campaign] = RootPaths(Path(sys.argv[1])).campaigns()
print(request_cancel(campaign, pid=int(sys.argv[2]), request=CancelRequest(attempt="m.evil.r1.1")).refusal)
"""


def waiting(lab: Lab, id_: str, gate: Path) -> dict[str, Any]:
    """A mission whose shell runs until the gate exists."""
    wait = f"until [ -e {gate} ]; do sleep 0.05; done; echo done >done.txt # {id_}"
    return mission(id_, {"run": wait}, say_done(), workspace={"copy": "tree"}, probes=[PROBE])


def shells(gate: Path, id_: str) -> list[int]:
    return processes_with(f"-e {gate} ]; do sleep 0.05; done; echo done >done.txt # {id_}")


@pytest.mark.real_agent
@pytest.mark.requirement("attempt.interrupt-one")
def test_attempt_cancel_ends_one_attempt_of_a_shared_server_and_no_sibling(lab: Lab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    lab.workspace("tree", {"a.txt": "a\n"})
    spec = lab.write_spec([waiting(lab, "slow", gate), waiting(lab, "other", gate)], schedule={"parallel": 2})
    with running(lab, "run", str(spec)) as owner:
        wait_until(lambda: bool(shells(gate, "slow") and shells(gate, "other")))
        unknown = ask(lab, "attempt", "cancel", "nothing.codex.r1.1", "--json")
        assert (unknown.code, unknown.json["error"]["code"]) == (2, "attempt.not-running")
        assert SLOW in unknown.json["error"]["suggestion"]
        said = ask(lab, "attempt", "cancel", SLOW, "--reason", "it hangs", "--json")
        campaign = campaign_of(lab).folder.name
        [run] = RootPaths(lab.root).runs()
        assert (said.code, said.json) == (
            0,
            {"attemptId": SLOW, "runId": run.folder.name, "campaignId": campaign, "pid": owner.pid},
        )
        wait_until(lab.attempts()[SLOW].seal.exists)
        assert shells(gate, "slow") == [], "its shell is gone before the seal"
        assert shells(gate, "other"), "its sibling works"
        assert runner_ref_of(lab.attempts()[SLOW]).process_id is not None
        wait_until(lambda: (SLOW, "sealed", "cancelled", "run.operator-cancel") in ledger(lab))
        again = ask(lab, "attempt", "cancel", SLOW, "--json")
        assert (again.code, again.json["error"]["code"]) == (2, "attempt.over")
        gate.touch()
        assert owner.wait(timeout=60) == 4, "a trial without a result is inconclusive"

    assert ledger(lab) == [
        (OTHER, "sealed", "completed", None),
        (SLOW, "sealed", "cancelled", "run.operator-cancel"),
    ]
    refs = {runner_ref_of(lab.attempts()[name]).process_id for name in (SLOW, OTHER)}
    assert len(refs) == 1, "both ran in one agent process"
    lab.assert_all_evidence_is_valid()
    by = Operator(user=getpass.getuser(), uid=os.getuid(), pid=os.getpid())
    rows = [decode_supervisor_row(row) for row in rows_of(lab.attempts()[SLOW]) if row.dir == "self"]
    assert [row for row in rows if isinstance(row, CancelRequested)] == [CancelRequested(why="it hangs", by=by)]
    report = report_of(lab.attempts()[SLOW])
    assert (report.outcome, report.code) == (Outcome.CANCELLED, "run.operator-cancel")
    assert report.detail == f"cancelled by {by}: it hangs"

    whole = json.loads(ask(lab, "campaign", "report", "--attempts", "--json").stdout)
    assert [(each["trial"], each["why"]) for each in whole["missing"]] == [
        ("slow.codex.r1", "cancelled by the operator")
    ]
    assert (whole["score"]["verified"]["passed"], whole["score"]["verified"]["scored"]) == (1, 1)
    text = ask(lab, "campaign", "report").stdout
    assert "Cancelled by the operator (1)" in text
    assert "it hangs" in text

    ended = ask(lab, "attempt", "cancel", OTHER, "--json")
    assert (ended.code, ended.json["error"]["code"]) == (2, "attempt.over")
    assert lab.proctor("campaign", "resume", "--json").returncode == 0
    assert (lab.attempts().keys() - {SLOW, OTHER}) == {"slow.codex.r1.2"}
    refused = ask(lab, "campaign", "publish-check", "--json")
    assert (refused.code, [each["code"] for each in refused.json["reasons"]]) == (1, ["publish.cancelled"])


@pytest.mark.real_agent
@pytest.mark.requirement("attempt.interrupt-one")
def test_attempt_cancel_of_a_killed_campaign_says_how_to_resume_it(lab: Lab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    lab.workspace("tree", {"a.txt": "a\n"})
    spec = lab.write_spec([waiting(lab, "slow", gate)])
    with running(lab, "run", str(spec)):
        wait_until(lambda: bool(shells(gate, "slow")))
    said = ask(lab, "attempt", "cancel", SLOW, "--json")
    campaign = campaign_of(lab).folder.name
    assert (said.code, said.json["error"]["code"]) == (2, "campaign.not-running")
    assert said.json["error"]["suggestion"] == f"proctor campaign resume {campaign} --root {lab.root}"


@pytest.mark.requirement("attempt.interrupt-one")
def test_agent_cannot_cancel_an_attempt_of_its_own_campaign(lab: Lab) -> None:
    script = lab.folder / "attack.py"
    script.write_text(ATTACK)
    own = " ".join(f"{name}={os.environ[name]}" for name in ("HOME", "XDG_STATE_HOME") if name in os.environ)
    # Without the environment of the spawn, and so without its marker.
    attack = f"env -i PATH=$PATH {own} {sys.executable} {script} {lab.root} {os.getpid()} >said.txt"
    found = run_flows(lab, {"evil": flow(attack, contain="none")})
    assert report_of(found["evil"]).outcome is Outcome.COMPLETED
    assert "+spawned\n" in found["evil"].workspace_diff.read_text()
