"""Evidence of the real agent, recorded once a session; each test works on a copy."""

import shutil
from pathlib import Path

import pytest

from proctor.campaign.stops import StopSignals
from proctor.campaign.watch import CampaignWatcher
from proctor.event.model import Event, ToolBegan
from proctor.evidence.layout import AttemptPaths, RunPaths
from proctor.ids import AttemptId
from tests.attempt.recorded import FIX, NAP
from tests.lab import Lab, mission, say_done
from tests.made_once import made_once


class _StopsTheNap(CampaignWatcher):
    def __init__(self, stops: StopSignals) -> None:
        self._stops = stops

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        if attempt == NAP and isinstance(event, ToolBegan):
            self._stops.one[attempt].set()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    """One run of three: a fix that is made, a fix that is only claimed, and a command that is cut short."""
    folder = made_once(tmp_path_factory, "recorded", _record)
    [run] = (folder / "evidence" / "runs").iterdir()
    return RunPaths(run)


def _record(folder: Path) -> None:
    lab = Lab(folder)
    workspace = {"copy": "greeting"}
    probe = {"kind": "headless_run", "command": ["cat", "greet.txt"], "stdout": "Hello, Ada\n"}
    patch = {"say": "I mend it.", "patch": {"file": "greet.txt", "old": "Hello, world", "new": "Hello, Ada"}}
    missions = [
        mission(
            "fix",
            {"run": "cat greet.txt"},
            patch,
            say_done("Ada"),
            workspace=workspace,
            probes=[probe],
            expect={
                "matches": "^Ad",
                "trace": {"max_tool_calls": 2, "max_repeats": 1, "tools": ["patch"], "commands": ["cat "]},
                "workspace": {"changed": ["*.txt"], "only": ["greet.txt"]},
            },
        ),
        mission("claim", {"think": "Too much work.", **say_done("Ada")}, workspace=workspace, probes=[probe]),
        mission("nap", {"say": "I sleep.", "run": "echo zzz; sleep 300"}, say_done()),
    ]
    stops = StopSignals()
    lab.workspace("greeting", {"greet.txt": "Hello, world\n"})
    lab.run(lab.write_spec(missions), stops=stops, watcher=_StopsTheNap(stops))


@pytest.fixture
def run(recorded: RunPaths, tmp_path: Path) -> RunPaths:
    return RunPaths(shutil.copytree(recorded.folder, tmp_path / recorded.folder.name))


@pytest.fixture
def fix(run: RunPaths) -> AttemptPaths:
    """The attempt with everything in it: two tools, messages, probes, a diff."""
    return AttemptPaths(run.folder / "attempts" / FIX)
