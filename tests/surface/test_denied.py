"""What the user may not look into is told with its place and what to do, and takes nothing else from view."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab import DEADLINE_S, Lab, mission, say_done
from tests.report.made import CAMPAIGN, tried

pytestmark = pytest.mark.proctor_process


@contextmanager
def shut(folder: Path) -> Iterator[Path]:
    """A folder that not even its owner may look into."""
    folder.mkdir(parents=True)
    folder.chmod(0)
    try:
        yield folder
    finally:
        folder.chmod(0o700)


def ask_without_privilege(lab: Lab, *words: str, **env: str) -> Any:
    """The command's JSON. Root looks into everything unless it lays down two capabilities."""
    less = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []
    said = subprocess.run(
        [*less, sys.executable, "-m", "proctor", *words, "--json"],
        env={**os.environ, "PROCTOR_ROOT": str(lab.root), **env},
        cwd=lab.folder,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    return json.loads(said.stdout)


def well(lab: Lab) -> str:
    return str(lab.write_spec([mission("one", say_done())]))


@pytest.mark.parametrize("below", ["", "mine/evidence"])
@pytest.mark.parametrize("words", [("run", "SPEC"), ("campaign", "status"), ("campaign", "list")])
def test_an_evidence_root_that_cannot_be_looked_into_is_named(lab: Lab, words: tuple[str, ...], below: str) -> None:
    words = tuple(well(lab) if word == "SPEC" else word for word in words)
    with shut(lab.folder / "shut") as folder:
        error = ask_without_privilege(lab, *words, "--root", str(folder / below))["error"]
    assert (error["code"], error["what"]) == ("machine.unwritable", "Permission denied")
    assert error["file"] == str(folder / below)
    assert "--root" in error["todo"]


@pytest.mark.parametrize("below", ["", "spawns", "spawns/1-owner"])
def test_the_doctor_does_not_call_gone_what_it_may_not_look_at(lab: Lab, below: str) -> None:
    state = lab.folder / "state"
    (state / "proctor" / below).parent.mkdir(parents=True, exist_ok=True)
    with shut(state / "proctor" / below):
        told = ask_without_privilege(lab, "doctor", XDG_STATE_HOME=str(state))
    [leftovers] = [each for each in told["checks"] if each["name"] == "leftovers"]
    assert (leftovers["status"], "Permission denied" in leftovers["what"]) == ("fail", True)


@pytest.mark.parametrize("below", ["", "evidence"])
def test_the_doctor_tells_the_rest_where_the_evidence_root_is_denied(lab: Lab, below: str) -> None:
    with shut(lab.folder / "shut") as folder:
        told = ask_without_privilege(lab, "doctor", "--root", str(folder / below))
    checks = {each["name"]: each for each in told["checks"]}
    assert told["exit"] == 3
    assert {"containment", "codex_app_server", "disk", "leftovers", "scratch"} <= checks.keys()
    for name in ("evidence", "campaigns", "locks", "retention"):
        assert (checks[name]["status"], str(folder) in checks[name]["what"]) == ("fail", True), name
        assert checks[name]["todo"] is not None
    assert checks["state"]["status"] == "ok"


def test_the_doctor_tells_the_rest_where_cache_and_state_are_denied(lab: Lab) -> None:
    with shut(lab.folder / "shut") as folder:
        (lab.folder / "state" / "proctor").mkdir(parents=True)
        env = {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(lab.folder / "state")}
        with shut(lab.folder / "state" / "proctor" / "spawns"):
            told = ask_without_privilege(lab, "doctor", **env)
    checks = {each["name"]: each["status"] for each in told["checks"]}
    assert told["exit"] == 3
    assert {name: checks[name] for name in ("cache", "scratch", "locks", "evidence", "retention")} == {
        "cache": "fail",
        "scratch": "fail",
        "locks": "fail",
        "evidence": "ok",
        "retention": "fail",
    }


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("secrets[0].file", {"secrets": [{"file": "../shut/key"}]}),
        ("missions[0].workspace.git", {"workspace": {"git": "../shut/key", "ref": "HEAD"}}),
        ("missions[0].workspace.copy", {"workspace": {"copy": "../shut/key"}}),
        ("prices", {"prices": "../shut/key"}),
    ],
)
def test_a_file_of_a_spec_that_is_denied_is_told_with_its_key(lab: Lab, key: str, more: dict[str, Any]) -> None:
    of_mission = {name: value for name, value in more.items() if name == "workspace"}
    top = {name: value for name, value in more.items() if name != "workspace"}
    spec = str(lab.write_spec([mission("one", say_done(), **of_mission)], **top))
    with shut(lab.folder / "shut"):
        error = ask_without_privilege(lab, "run", spec)["error"]
    assert (error["code"], error["key"]) == ("spec.unreadable", key)
    assert error["what"] == "`../shut/key` cannot be read: Permission denied"


@pytest.mark.parametrize(
    "words",
    [
        ("init", "shut/here"),
        ("campaign", "report", "--output", "shut/here/report.json"),
        ("attempt", "export", "fix", "--codex-native", "--output", "shut/here/rows.jsonl"),
        ("attempt", "export", "--check", "shut/here"),
        ("sign", CAMPAIGN, "--key", "shut/here"),
    ],
)
def test_a_path_of_a_command_that_is_denied_is_the_users_to_mend(lab: Lab, words: tuple[str, ...]) -> None:
    tried(lab.root, {"fix.codex.r1": []})
    with shut(lab.folder / "shut"):
        error = ask_without_privilege(lab, *words)["error"]
    assert error["code"] in ("usage", "evidence.not-found", "sign.key")
    assert "shut/here" in f"{error['what']} {error['file']}"


def test_a_spec_that_is_denied_is_not_said_to_be_gone(lab: Lab) -> None:
    paths = tried(lab.root, {"fix.codex.r1": []})
    with closing(sqlite3.connect(paths.ledger)) as ledger:
        ledger.execute("update campaign set file = ?", (str(lab.folder / "shut" / "spec.yaml"),))
        ledger.commit()
    with shut(lab.folder / "shut"):
        error = ask_without_privilege(lab, "campaign", "resume")["error"]
    assert (error["code"], error["what"]) == ("spec.unreadable", "this file cannot be read: Permission denied")
    assert ask_without_privilege(lab, "campaign", "resume")["error"]["code"] == "campaign.no-spec"
