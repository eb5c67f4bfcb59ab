"""A campaign that is started with `nohup proctor run … &`, where the signals of a terminal are ignored."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.background import ignoring
from tests.lab import Lab, mission, say_done, wait_until
from tests.runtime.process.commands import flow

BACKGROUND = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


@pytest.mark.proctor_process
def test_a_campaign_under_nohup_outlives_the_terminal_and_its_agents_shells_ignore_no_signal(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    command = "grep ^SigIgn /proc/self/status >ignored; touch up; until [ -e go ]; do sleep 0.05; done"
    spec = lab.write_spec([mission("m", say_done(), expect={"outcome": "completed"})], flow=flow(command))
    with ignoring(*BACKGROUND):
        running = lab.start("run", str(spec))
    wait_until(lambda: any(each.exists() for each in workspaces(lab, "up")))
    for number in BACKGROUND:
        running.send_signal(number)
    [go] = workspaces(lab, "go")
    go.touch()

    assert running.wait(60) == 0
    [paths] = lab.attempts().values()
    [mask] = re.findall(r"\+SigIgn:\s+([0-9a-f]+)", paths.workspace_diff.read_text())
    assert [number.name for number in BACKGROUND if int(mask, 16) >> (number - 1) & 1] == []


def workspaces(lab: Lab, name: str) -> list[Path]:
    """A file of that name in the workspace of each attempt, which is the one place both sides see."""
    runs = Path(os.environ["XDG_CACHE_HOME"], "proctor/runs")
    folders = [paths.folder for paths in lab.attempts().values()]
    return [runs / each.parent.parent.name / "attempts" / each.name / "workspace" / name for each in folders]
