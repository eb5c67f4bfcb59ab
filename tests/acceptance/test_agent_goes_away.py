"""An agent that is killed in the middle of a turn: a typed outcome for it, and a fresh agent for the next."""

import os
import signal
from pathlib import Path

import pytest

from proctor.campaign.watch import CampaignWatcher
from proctor.event.model import Event, ToolBegan
from proctor.event.outcome import Outcome
from proctor.event.row import SessionRefusal, StepTaken
from proctor.event.supervisor_events import decode_supervisor_row
from proctor.ids import AttemptId
from tests.lab import Lab, mission, processes_with, report_of, rows_of, say_done

pytestmark = pytest.mark.real_agent


class KillsTheAgent(CampaignWatcher):
    """kill -9 of the app-server as soon as the first shell runs."""

    def __init__(self, nap: str) -> None:
        self._nap = nap

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        if isinstance(event, ToolBegan) and self._nap in str(event.input):
            for pid in processes_with("app-server\0--listen"):
                if Path(f"/proc/{pid}/exe").readlink().name == "codex" and _is_ours(pid):
                    os.kill(pid, signal.SIGKILL)


def _is_ours(pid: int) -> bool:
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    return f"CODEX_HOME={os.environ['XDG_CACHE_HOME']}/".encode() in environ


def test_a_killed_agent_is_a_crash_and_the_next_attempt_gets_another(lab: Lab) -> None:
    nap = f"307.{os.getpid()}"
    missions = [mission("first", {"run": f"sleep {nap}"}, say_done()), mission("second", say_done("alive"))]
    lab.run(lab.write_spec(missions, schedule={"parallel": 1}), watcher=KillsTheAgent(nap))
    attempts = {name.partition(".")[0]: paths for name, paths in lab.attempts().items()}
    reports = {name: report_of(paths) for name, paths in attempts.items()}
    assert (reports["first"].outcome, reports["first"].code) == (Outcome.CRASHED, "peer.killed")
    seen = [decode_supervisor_row(row) for row in rows_of(attempts["first"]) if row.dir == "self"]
    assert "hangup" in [row.step for row in seen if isinstance(row, StepTaken)]
    assert not any(isinstance(row, SessionRefusal) for row in seen), "the agent took the prompt"
    assert reports["second"].outcome is Outcome.COMPLETED
    assert processes_with(nap) == []
    lab.assert_all_evidence_is_valid()
