"""The real server, stopped in its tracks: the attempt ends by its clock, and the next one gets another process."""

import os
import signal
from pathlib import Path

import pytest

from proctor import places
from proctor.campaign.watch import CampaignWatcher
from proctor.event.model import Event, ToolBegan
from proctor.event.outcome import Outcome
from proctor.ids import AttemptId
from tests.lab import Lab, mission, report_of, runner_ref_of, say_done

pytestmark = pytest.mark.real_agent


class StopsTheServer(CampaignWatcher):
    """As soon as the first attempt's shell runs, its server hears and says no more."""

    def __init__(self) -> None:
        self.stopped: list[int] = []

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        if not self.stopped and isinstance(event, ToolBegan):
            self.stopped = servers()
            for pid in self.stopped:
                os.kill(pid, signal.SIGSTOP)


def servers() -> list[int]:
    """The app-servers that this test's own Proctor started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ, command = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"CODEX_HOME={places.cache_dir()}".encode() in environ and command.split(b"\0")[0].endswith(b"/codex"):
                found.append(int(entry.name))
    return found


@pytest.mark.requirement("attempt.clocks")
@pytest.mark.requirement("attempt.no-orphans")
@pytest.mark.requirement("schedule.recovery")
def test_a_server_that_stops_answering_costs_one_attempt_and_is_replaced(lab: Lab) -> None:
    watcher = StopsTheServer()
    missions = [mission("first", {"run": "sleep 300.271"}, say_done()), mission("second", say_done())]
    lab.run(lab.write_spec(missions, schedule={"parallel": 1}, limits={"stall": "3s"}), watcher=watcher)
    first, second = (lab.attempts()[name] for name in ("first.codex.r1.1", "second.codex.r1.1"))
    assert (report_of(first).outcome, report_of(first).code) == (Outcome.STALLED, "limit.stall")
    assert report_of(second).outcome is Outcome.COMPLETED
    assert runner_ref_of(first).process_id != runner_ref_of(second).process_id
    assert watcher.stopped != []
    assert servers() == []
    lab.assert_all_evidence_is_valid()
