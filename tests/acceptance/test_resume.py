"""Campaigns that are killed, stopped or raced for go on where their seals end, on the real agent."""

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.attempt.recheck import examine_run
from proctor.evidence.layout import CampaignPaths, RootPaths
from tests.lab import Lab, mission, processes_with, say_done, wait_until

pytestmark = pytest.mark.real_agent

QUICK = [mission(f"quick{number}", {"run": f"echo {number} > out"}, say_done(str(number))) for number in range(4)]


def waiting_for(gate: Path) -> dict[str, Any]:
    """A mission that ends when the gate is there."""
    return mission("slow", {"run": f"until [ -e {gate} ]; do sleep 0.05; done"}, say_done("slow"))


def campaign_of(lab: Lab) -> CampaignPaths:
    [campaign] = RootPaths(lab.root).campaigns()
    return campaign


def ledger(lab: Lab) -> list[tuple[str, str, str | None, str | None]]:
    with closing(sqlite3.connect(campaign_of(lab).ledger)) as reader:
        return reader.execute("select id, state, outcome, code from attempt order by id").fetchall()


def sealed(lab: Lab) -> set[str]:
    return {name for name, paths in lab.attempts().items() if paths.seal.exists()}


@contextmanager
def running(lab: Lab, *words: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A Proctor that is dead afterwards."""
    process = lab.start(*words)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def spec_of(lab: Lab, gate: Path) -> Path:
    return lab.write_spec([waiting_for(gate), *QUICK], schedule={"parallel": 2})


def killed_in_the_middle(lab: Lab, spec: Path, gate: Path) -> None:
    """The quick ones are sealed, the slow one is in its turn."""
    with running(lab, "run", str(spec)) as victim:
        wait_until(lambda: len(sealed(lab)) == len(QUICK) and processes_with(str(gate)) != [])
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(timeout=10)


def test_a_campaign_that_was_killed_goes_on_at_once_and_every_cell_has_one_result(lab: Lab, gate: Path) -> None:
    spec = spec_of(lab, gate)
    killed_in_the_middle(lab, spec, gate)
    before = {paths.seal: paths.seal.read_bytes() for paths in lab.attempts().values() if paths.seal.exists()}
    gate.touch()
    resumed = lab.proctor("campaign", "resume", "--json")
    assert ledger(lab) == [
        *((f"quick{number}.codex.r1.1", "sealed", "completed", None) for number in range(4)),
        ("slow.codex.r1.1", "abandoned", "unknown", "run.cut-off"),
        ("slow.codex.r1.2", "sealed", "completed", None),
    ], resumed.stderr
    assert {path: path.read_bytes() for path in before} == before
    report = json.loads(resumed.stdout)
    assert len(report["runIds"]) == 2
    assert report["missingCells"] == []
    assert {each["cell"] for each in report["attempts"] if each["state"] == "sealed"} == {
        "slow.codex.r1",
        *(f"quick{number}.codex.r1" for number in range(4)),
    }
    found = [each for run in RootPaths(lab.root).runs() for each in examine_run(run, is_strict=True)]
    assert {each.status for each in found if each.name in sealed(lab)} == {"valid"}
    # There is nothing left to do, and doing it changes nothing.
    assert lab.run(spec, resume=campaign_of(lab)).attempts == ()
    assert len(ledger(lab)) == 6
    assert len(list(RootPaths(lab.root).runs())) == 2
