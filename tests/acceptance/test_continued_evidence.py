"""What validation and reports say of an attempt that continues another one, and of forgeries of that."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from proctor.attempt.recheck import examine_run
from proctor.evidence.layout import RootPaths
from proctor.evidence.reader import Finding
from tests.acceptance.waiting import FIRST, KEY, SECOND, interrupted, write_waiting_spec
from tests.lab import Lab
from tests.made_once import made_once
from tests.provider import open_provider
from tests.tampering.edits import read_json, reseal_folder, write_json

pytestmark = [pytest.mark.real_agent, pytest.mark.requirement("session.continue-after-wait")]

ATTEMPT, RUNNER, REPORT = "attempt.json", "runner.ref.json", "attempt.report.json"


def run_campaign(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, open_provider(bearer=KEY, first=(interrupted(),)) as provider:
        patch.setenv("LOOPBACK_API_KEY", KEY)
        lab = Lab(folder)
        lab.run(write_waiting_spec(lab, provider))


@pytest.fixture
def lab(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A campaign with one continued trial."""
    made = made_once(tmp_path_factory, "continued-campaign", run_campaign)
    shutil.copytree(made / "evidence", tmp_path / "evidence")
    return Lab(tmp_path)


def findings(lab: Lab) -> list[Finding]:
    found = (examine_run(run, is_strict=True) for run in RootPaths(lab.root).runs())
    return [finding for each in found for validation in each for finding in validation.findings]


def alter(lab: Lab, attempt: str, file: str, change: Mapping[str, Any]) -> None:
    folder = lab.attempts()[attempt].folder
    write_json(folder / file, {**read_json(folder / file), **change})
    reseal_folder(folder)


def taken(lab: Lab, **change: Any) -> dict[str, Any]:
    return {"continuedFrom": {**read_json(lab.attempts()[SECOND].attempt)["continuedFrom"], **change}}


def hide_continuation(lab: Lab) -> None:
    alter(lab, SECOND, ATTEMPT, {"continues": None, "continuedFrom": None, "freshStart": "no-wait"})
    alter(lab, SECOND, RUNNER, {"isFreshSession": True})


FORGERIES: dict[str, tuple[Callable[[Lab], None], tuple[str, str]]] = {
    "the attempt names no other": (
        lambda lab: alter(lab, SECOND, ATTEMPT, {"continues": None}),
        ("evidence.continuation", "only one of continues and continuedFrom"),
    ),
    "the attempt hides that it continues another": (
        hide_continuation,
        ("evidence.derived", "isFreshSession is True, but the frames say otherwise"),
    ),
    "the attempt says why it does not continue another": (
        lambda lab: alter(lab, SECOND, ATTEMPT, {"freshStart": "no-wait"}),
        ("evidence.continuation", "and says why it does not: no-wait"),
    ),
    "the first attempt says why it starts fresh": (
        lambda lab: alter(lab, FIRST, ATTEMPT, {"freshStart": "no-wait"}),
        ("evidence.continuation", "it is the first of its trial"),
    ),
    "the attempt names itself": (
        lambda lab: alter(lab, SECOND, ATTEMPT, {"continues": SECOND}),
        ("evidence.continuation", "not the attempt of its trial before it"),
    ),
    "the attempt names another run": (
        lambda lab: alter(lab, SECOND, ATTEMPT, taken(lab, runId="20200101-000000-aaaaaa")),
        ("evidence.continuation", "no intact seal"),
    ),
    "the attempt names a run outside of the root": (
        lambda lab: alter(lab, SECOND, ATTEMPT, taken(lab, runId="../x")),
        ("evidence.continuation", "cannot be read"),
    ),
    "the attempt names another workspace": (
        lambda lab: alter(lab, SECOND, ATTEMPT, taken(lab, workspaceDigest="sha256:0")),
        ("evidence.continuation", "which it continues: workspace"),
    ),
    "the attempt names fewer tokens": (
        lambda lab: alter(lab, SECOND, ATTEMPT, taken(lab, tokens=1)),
        ("evidence.continuation", "which it continues: tokens"),
    ),
    "the attempt names another thread": (
        lambda lab: alter(lab, SECOND, ATTEMPT, taken(lab, threadId="another")),
        ("evidence.continuation", "which it continues: thread"),
    ),
    "the runner calls the session fresh": (
        lambda lab: alter(lab, SECOND, RUNNER, {"isFreshSession": True}),
        ("evidence.continuation", "the session is not the thread"),
    ),
    "the attempt before left another workspace": (
        lambda lab: alter(lab, FIRST, REPORT, {"workspaceDigestAfter": "sha256:0"}),
        ("evidence.continuation", "which it continues: workspace"),
    ),
    "the attempt before did not wait": (
        lambda lab: alter(lab, FIRST, REPORT, {"outcome": "completed", "code": None}),
        ("evidence.continuation", "that it waited"),
    ),
    "the attempt before is not sealed": (
        lambda lab: lab.attempts()[FIRST].seal.unlink(),
        ("evidence.continuation", "no intact seal"),
    ),
    "the attempt before is gone": (
        lambda lab: shutil.rmtree(lab.attempts()[FIRST].folder),
        ("evidence.continuation", "no intact seal"),
    ),
}


def test_validation_accepts_a_continued_attempt(lab: Lab) -> None:
    assert findings(lab) == []
    assert lab.proctor("attempt", "rederive", SECOND, "--check").returncode == 0


def test_regrade_rebuilds_the_tree_of_a_continued_attempt_from_the_untouched_workspace(lab: Lab) -> None:
    answer = lab.proctor("regrade", SECOND, "--json")
    assert answer.returncode == 0, answer.stderr
    [row] = json.loads(answer.stdout)["attempts"]
    assert (row["status"], row["before"]["verified"], row["after"]["verified"]) == ("regraded", True, True), row


@pytest.mark.parametrize("forgery", FORGERIES)
def test_validation_finds_a_forged_continuation(lab: Lab, forgery: str) -> None:
    edit, (code, detail) = FORGERIES[forgery]
    edit(lab)
    assert [each for each in findings(lab) if each.code == code and detail in each.detail], findings(lab)
