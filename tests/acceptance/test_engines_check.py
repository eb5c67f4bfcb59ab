"""`proctor engines check` passes every engine that is shipped, and names each case that a broken engine fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.surface.cli.app import answer
from tests.plugins import install

pytestmark = [pytest.mark.long, pytest.mark.proctor_process]

ENGINES = ("none", "window", "lossless", "notes")

BROKEN = """
from msgspec.structs import replace

from proctor.ids import EntryId
from proctor.runtime.base import Tool
from proctor_notes import INFO, NotesEngine


async def search(arguments):
    return "nothing"


class Broken(NotesEngine):
    info = replace(INFO, id="broken")

    def assemble(self, ctx, history, prompt):
        result = super().assemble(ctx, history, prompt)
        if not result.messages:
            return result
        [summary] = result.messages
        # 1: the id depends on the hash seed of the process.
        id_ = EntryId(f"notes-{hash(summary.part.text)}")
        # 2: it covers tainted entries, and is not tainted.
        tainted = (message.id for message in history if message.is_tainted)
        part = replace(summary.part, sources=(*summary.part.sources, *tainted))
        return replace(result, messages=(replace(summary, id=id_, part=part),))

    def commit_turn(self, ctx, turn):
        # 3: other messages under a known key are taken for the same ones.
        with self._transaction() as connection:
            known = connection.execute("select 1 from turn where key = ?", (turn.key,)).fetchone()
        return "duplicate" if known else super().commit_turn(ctx, turn)

    def tools(self):
        # 4: the tools depend on what was said.
        name = "search_again" if self._database.exists() else "search"
        return [Tool(name=name, description="Finds notes.", schema={}, call=search)]

    def forget(self, ctx, reason):
        # 5: only the record of calls is removed.
        self._calls.unlink(missing_ok=True)


def create(setup):
    # 6: any option is accepted.
    return Broken(setup.folder, line_chars=100)
"""

BROKEN_CASES = {
    "same-bytes-elsewhere": "a process with another value of PYTHONHASHSEED assembled another result",
    "tainted": "of tainted entries is not tainted",
    "other-payload": "the key of another turn was accepted with other messages, as 'duplicate'",
    "tools": "names, descriptions or schemas of the tools changed in one session",
    "forget": "after forget('reset'), the word is in notes.db",
    "options": "it accepted the option 'no_engine_has_this_option'",
}

FOLLOWING_CASES = {"durable": "the key of another turn was accepted with other messages, as 'duplicate'"}
"""Cases that fail for the same reason as another one."""


def check(engine_id: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = answer(["engines", "check", engine_id, "--json"])
    checked = json.loads(capsys.readouterr().out)
    return code, {each["case"]: each for each in checked["verdicts"]}


@pytest.mark.requirement("context.engines")
@pytest.mark.parametrize("engine_id", ENGINES)
def test_engines_check_passes(
    engine_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("proctor.toml").write_text('plugins = ["notes"]\n')
    code, verdicts = check(engine_id, capsys)
    assert {name: each for name, each in verdicts.items() if each["result"] == "failed"} == {}
    assert code == 0
    assert [verdicts[name]["result"] for name in ("killed", "same-bytes-elsewhere", "durable")] == ["passed"] * 3


@pytest.mark.requirement("context.engines")
def test_engines_check_names_each_case_in_which_an_engine_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(tmp_path)
    install(
        site, "broken", points={}, engines={"broken": "six_times_broken:create"}, modules={"six_times_broken": BROKEN}
    )
    Path("proctor.toml").write_text('plugins = ["broken"]\n')
    code, verdicts = check("broken", capsys)
    failed = {name: each for name, each in verdicts.items() if each["result"] == "failed"}
    expected = BROKEN_CASES | FOLLOWING_CASES
    assert code == 1
    assert set(failed) == set(expected)
    assert {name: text in failed[name]["what"] for name, text in expected.items()} == dict.fromkeys(expected, True)
    assert all(each["todo"] for each in failed.values())
