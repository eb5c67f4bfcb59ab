"""Evidence of the real agent, recorded once a session; each test works on a copy."""

import shutil
from pathlib import Path

import pytest

from proctor.campaign.stops import Stops
from proctor.campaign.watch import CampaignWatcher
from proctor.event.model import Event, ToolBegan
from proctor.evidence.layout import AttemptPaths, RunPaths
from proctor.ids import AttemptId
from tests.attempt.recorded import FIX, NAP
from tests.lab import Lab, mission, say_done


class _StopsTheNap(CampaignWatcher):
    def __init__(self, stops: Stops) -> None:
        self._stops = stops

    def saw(self, attempt: AttemptId, event: Event) -> None:
        if attempt == NAP and isinstance(event, ToolBegan):
            self._stops.one[attempt].set()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    """One run of three: a fix that is made, a fix that is only claimed, and a command that is cut short."""
    lab = Lab(tmp_path_factory.mktemp("recorded"))
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
    stops = Stops()
    lab.workspace("greeting", {"greet.txt": "Hello, world\n"})
    lab.run(lab.write_spec(missions), stops=stops, watcher=_StopsTheNap(stops))
    [run] = (RunPaths(folder) for folder in (lab.root / "runs").iterdir())
    return run


@pytest.fixture
def run(recorded: RunPaths, tmp_path: Path) -> RunPaths:
    return RunPaths(shutil.copytree(recorded.folder, tmp_path / recorded.folder.name))


@pytest.fixture
def fix(run: RunPaths) -> AttemptPaths:
    """The attempt with everything in it: two tools, messages, probes, a diff."""
    return AttemptPaths(run.folder / "attempts" / FIX)
