"""`proctor engines list` and `engines check`: what is installed, and what a check says and exits with."""

import json
from pathlib import Path

import pytest

from proctor.surface.cli.app import answer
from tests.plugins import install

BROKEN = """
from msgspec.structs import replace
from proctor.context.engines.none import INFO, NullEngine


class Broken(NullEngine):
    info = replace(INFO, id="broken")

    def commit_turn(self, ctx, turn):
        return "committed"


def create(setup):
    return Broken(setup)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    install(folder, "broken", points={}, engines={"broken": "broken_engine:create"}, modules={"broken_engine": BROKEN})
    return folder


def test_engines_list_shows_what_is_built_in_and_why_a_plugin_is_not_loaded(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(["engines", "list", "--json"]) == 0
    listed = {each["id"]: each for each in json.loads(capsys.readouterr().out)["engines"]}
    assert set(listed) >= {"none", "window", "lossless", "broken"}
    assert listed["window"]["isBuiltIn"]
    assert listed["window"]["info"] == {
        "id": "window",
        "name": "Newest turns",
        "version": "1",
        "ownsCompaction": False,
        "maintenance": "foreground",
        "requires": [],
        "commits": "exactly-once",
    }
    assert (listed["broken"]["info"], listed["broken"]["problem"]["code"]) == (None, "runtime.not-allowed")
    assert answer(["engines", "list"]) == 0
    shown = capsys.readouterr().out
    assert "broken: plugin, not named in any config" in shown
    assert "Newest turns (1)" in shown


def test_engines_check_says_what_was_wrong_and_exits_1(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("proctor.toml").write_text('plugins = ["broken"]\n')
    assert answer(["engines", "check", "broken", "--case", "duplicate"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("failed duplicate expected A key that was committed before is a `duplicate`")
    assert "found the same turn was not a `duplicate` the second time" in shown
    assert "to do Store each key with a digest of its messages" in shown
    assert shown.endswith("broken: 1 failed: duplicate")


def test_engines_check_prints_json_alone_on_stdout(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["engines", "check", "none", "--case", "duplicate", "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    [verdict] = checked["verdicts"]
    assert (checked["id"], checked["exit"], verdict["result"], verdict["number"]) == ("none", 0, "passed", 14)


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (["windo"], "engine.unknown", 2),
        (["broken"], "runtime.not-allowed", 2),
        (["none", "--case", "budgets"], "usage", 2),
    ],
)
def test_engines_check_refuses_what_it_cannot_check(
    site: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: str, exit_code: int
) -> None:
    assert answer(["engines", "check", *words, "--json"]) == exit_code
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code
