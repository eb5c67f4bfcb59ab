"""Probes are checked before the first attempt: each once, and in bounded time."""

from pathlib import Path

import pytest

from proctor.campaign.stops import StopSignals
from proctor.campaign.watch import CampaignWatcher
from proctor.errors import InputError, MachineError
from tests.lab import Lab, mission, say_done

FLOW = {"runtime": ["process"], "options": {"process": {"command": "touch done"}}}


def counting(file: Path, *, then: str = "test -e done") -> dict[str, str]:
    return {"kind": "headless_run", "command": f"echo run >>{file}; {then}", "contain": "none"}


class Seen(CampaignWatcher):
    def __init__(self) -> None:
        self.checks: list[tuple[int, int]] = []

    def probes_checked(self, done: int, *, of: int) -> None:
        self.checks.append((done, of))


@pytest.mark.long
@pytest.mark.requirement("campaign.unjudged")
def test_equal_probes_on_equal_workspaces_are_checked_once(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    runs = lab.folder / "runs"
    missions = [mission(f"m{at}", say_done(), probes=[counting(runs)]) for at in range(3)]
    other = {"copy": lab.workspace("other", {"a.txt": ""})}
    missions.append(mission("other", say_done(), probes=[counting(runs)], workspace=other))
    seen = Seen()
    result = lab.run(lab.write_spec(missions, flow=FLOW, repeats=2), watcher=seen)
    assert seen.checks == [(0, 2), (1, 2), (2, 2)]
    # Two checks, and a baseline and a final run in each of eight attempts: a check replaces no baseline.
    assert len(runs.read_text().splitlines()) == 2 + 2 * 8
    assert {each.summary.verified for each in result.attempts if each.summary is not None} == {True}


@pytest.mark.requirement("campaign.unjudged")
def test_every_probe_that_cannot_judge_is_reported_at_once(lab: Lab) -> None:
    words = {"a": "true", "b": "true", "c": ["zork"], "d": "zork"}
    missions = [
        mission(name, say_done(), probes=[{"kind": "headless_run", "command": command}])
        for name, command in words.items()
    ]
    with pytest.raises(InputError) as passing:
        lab.run(lab.write_spec(missions, flow=FLOW))
    assert [each.key for each in passing.value.all_errors] == ["missions[0].probes[0]", "missions[1].probes[0]"]
    with pytest.raises(MachineError) as unable:
        lab.run(lab.write_spec(missions[2:], flow=FLOW))
    assert [each.code for each in unable.value.all_errors] == ["probe.cannot-run"] * 2
    assert lab.attempts() == {}


@pytest.mark.requirement("campaign.unjudged")
def test_probe_whose_program_a_hook_may_provide_does_not_stop_the_run(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    probes = [{"kind": "headless_run", "command": ["zork"]}]
    result = lab.run(
        lab.write_spec([mission("hooked", say_done(), probes=probes, hooks={"before": "true"})], flow=FLOW)
    )
    [attempt] = result.attempts
    assert attempt.summary is not None
    assert (attempt.summary.result, attempt.summary.unjudged) == ("unknown", "untouched-unavailable")


class StopsAtFirstCheck(CampaignWatcher):
    def __init__(self, stops: StopSignals) -> None:
        self._stops = stops

    def probes_checked(self, done: int, *, of: int) -> None:
        self._stops.drain.set()


@pytest.mark.requirement("campaign.unjudged")
def test_run_that_is_asked_to_stop_does_not_wait_for_a_slow_check(lab: Lab) -> None:
    stops = StopSignals()
    probes = [{"kind": "headless_run", "command": "sleep 310", "timeout": "300s"}]
    spec = lab.write_spec([mission("slow", say_done(), probes=probes)], flow=FLOW)
    result = lab.run(spec, stops=stops, watcher=StopsAtFirstCheck(stops))
    assert (result.how, result.attempts) == ("drained", ())
    assert result.warnings == (
        "1 probe not checked before the run; each attempt still runs every probe on its untouched workspace",
    )
