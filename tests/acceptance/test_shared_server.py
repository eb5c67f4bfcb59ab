"""Twenty attempts in one app-server: each has its own session, its own rows and its own folders."""

import re
from pathlib import Path

import msgspec
import pytest

from proctor import places
from proctor.campaign.stops import StopSignals
from proctor.campaign.watch import CampaignWatcher
from proctor.event.model import Event, ToolBegan
from proctor.event.outcome import Outcome
from proctor.ids import AttemptId
from tests.lab import Lab, jsonl, mission, processes_with, report_of, rows_of, runner_ref_of, say_done

pytestmark = pytest.mark.real_agent

PARALLEL = 20
INTERRUPTED = AttemptId("m13.codex.r1.1")
NAP = "314.159"


class InterruptsOne(CampaignWatcher):
    """Stops one attempt as soon as its shell runs."""

    def __init__(self, stops: StopSignals) -> None:
        self._stops = stops

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        if attempt == INTERRUPTED and isinstance(event, ToolBegan):
            self._stops.one[attempt].set()


def vandal(number: int) -> str:
    """A command that leaves its own mark and tries to leave one with its neighbour and in the agent's home."""
    other = f"../../m{(number + 1) % PARALLEL:02}.codex.r1.1"
    places = f"{other}/workspace {other}/tmp ../../../processes/*/home ../../../processes/*/tmp /tmp"
    tries = f"for place in {places}; do touch $place/vandal; done"
    return f"echo mark-{number:02} > mine.txt; {tries}; touch $TMPDIR/own; cat mine.txt"


@pytest.mark.requirement("schedule.isolation")
@pytest.mark.requirement("attempt.interrupt-one")
@pytest.mark.requirement("attempt.fresh-session")
@pytest.mark.requirement("runtime.events.lossless")
@pytest.mark.requirement("attempt.workspace")
def test_twenty_attempts_share_a_server_without_touching_each_other(lab: Lab) -> None:
    napping = f"sleep {NAP} & setsid env -i sleep {NAP} & sleep {NAP}"
    missions = [
        mission(f"m{number:02}", {"run": napping if number == 13 else vandal(number)}, say_done(f"mark-{number:02}"))
        for number in range(PARALLEL)
    ]
    stops = StopSignals()
    spec = lab.write_spec(missions, schedule={"parallel": PARALLEL})
    result = lab.run(spec, stops=stops, watcher=InterruptsOne(stops), is_scratch_kept=True)

    attempts = lab.attempts()
    reports = {name: report_of(paths) for name, paths in attempts.items()}
    others = {name: report for name, report in reports.items() if name != INTERRUPTED}
    assert len(attempts) == PARALLEL
    assert {report.outcome for report in others.values()} == {Outcome.COMPLETED}
    assert reports[INTERRUPTED].outcome is Outcome.CANCELLED
    assert processes_with(NAP) == [], "the interrupted attempt's shell children are gone"

    refs = {name: runner_ref_of(paths) for name, paths in attempts.items()}
    assert len({ref.thread_id for ref in refs.values()}) == PARALLEL
    assert len({ref.session_id for ref in refs.values()}) == PARALLEL
    assert len({ref.process_id for ref in refs.values()}) == 1
    for name, paths in attempts.items():
        threads = {thread for row in rows_of(paths) for thread in threads_in(row.frame)}
        assert threads == {refs[name].thread_id}, "an attempt's rows speak of its own thread only"
    for name in others:
        [call] = jsonl(attempts[name].tool_calls)
        assert f"mark-{name[1:3]}\n" in call["output"]
        assert call["output"].count("Read-only file system") == 5, "nobody wrote outside their own folders"

    scratch = places.cache_dir() / "runs" / result.run_id
    assert list(scratch.rglob("vandal")) == []
    assert not Path("/tmp/vandal").exists()
    assert len(list(scratch.rglob("own"))) == PARALLEL - 1, "everybody wrote in their own temporary folder"
    assert reports[INTERRUPTED].has_changed_files is False, "the agent's empty leftovers are gone before the digest"
    lab.assert_all_evidence_is_valid()


def threads_in(frame: msgspec.Raw | msgspec.UnsetType) -> set[str]:
    return set(re.findall(r'"threadId":"([^"]+)"', bytes(frame).decode())) if isinstance(frame, msgspec.Raw) else set()
