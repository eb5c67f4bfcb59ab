"""`proctor session` without an agent: what is stored, shown, searched, deleted and refused."""

import dataclasses
import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from proctor.clock import SYSTEM_CLOCK
from proctor.context.change_session import create_session
from proctor.context.kept_session import find_session, hold_session_folder, read_header, session_home
from proctor.context.model import SessionSettings, TurnContext
from proctor.context.store import open_store
from proctor.errors import InputError
from proctor.event.model import TextSaid, TextStreamed, ToolBegan, ToolEnded
from proctor.evidence.layout import RootPaths
from proctor.ids import CallId, Digest, ItemId, SessionKey, TurnId
from proctor.surface.cli.session_talk import MAX_LINE_BYTES, LineReader, StreamedText
from proctor.surface.session_turn import SessionOptions, choose_settings, settings_for
from tests.context.made import Events, fold, sitting
from tests.lab import Lab
from tests.plugins import install
from tests.terminal import DEADLINE_S, at_a_terminal

HOSTILE = "\x1b[2Jgone\u202e\x00"
SETTINGS = SessionSettings(runtime="codex_app_server", provider="openai", model="m", login="api-key")


def create(lab: Lab, key: str = "shop") -> RootPaths:
    root = RootPaths(lab.root)
    create_session(root, key, settings=SETTINGS, clock=SYSTEM_CLOCK)
    return root


def keep(
    root: RootPaths, *events: Any, is_admitted: bool = False, key: str = "shop", context: TurnContext | None = None
) -> None:
    """Store turns as if they had been said."""
    with open_store(find_session(root, key).store) as store:
        its = sitting(store.next_sitting())
        store.begin_sitting(its)
        for turn in fold(events):
            (store.admit if is_admitted else store.settle)(replace(turn, context=context), sitting=its)
        if not is_admitted:
            store.close_sitting(its)


def said(lab: Lab, *words: str, code: int = 0) -> Any:
    done = lab.proctor("session", *words, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def code_of(lab: Lab, *words: str, exit_: int) -> str:
    return str(said(lab, *words, code=exit_)["error"]["code"])


# ── creating ──


def test_new_stores_how_the_session_is_opened_and_starts_nothing(lab: Lab) -> None:
    (lab.folder / "work").mkdir()
    options = ("--on", "claude", "--workspace", "work", "--model", "anthropic/m", "--login", "api-key")
    assert lab.proctor("session", "new", "shop", *options, "--approvals", "workspace").returncode == 0
    shown = said(lab, "show", "shop")
    assert shown["settings"] == {
        "runtime": "claude_code",
        "workspace": str(lab.folder / "work"),
        "provider": "anthropic",
        "model": "m",
        "login": "api-key",
        "approvals": "workspace",
    }
    assert (shown["turns"], shown["sittings"], shown["binding"], shown["hasHome"]) == ([], [], None, False)
    assert code_of(lab, "new", "shop", *options, exit_=2) == "session.exists"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("new", "../shop", "--model", "openai/m", "--login", "api-key"), "session.id"),
        (("new", "shop"), "usage"),
        (("new", "shop", "--model", "openai/m", "--script", "s.yaml"), "usage"),
        (("new", "shop", "--on", "nosuch", "--model", "openai/m", "--login", "api-key"), "spec.unknown-runtime"),
        (("new", "shop", "--model", "m"), "spec.type"),
        (("new", "shop", "--script", "nosuch.yaml"), "spec.missing-file"),
        (("new", "shop", "--workspace", "nosuch", "--model", "openai/m", "--login", "api-key"), "spec.missing-file"),
        (("new", "shop", "--engine", "nosuch", "--model", "openai/m", "--login", "api-key"), "engine.unknown"),
        (("new", "shop", "--engine", "notes", "--model", "openai/m", "--login", "api-key"), "runtime.not-allowed"),
        (("say", "shop", "Hello?"), "session.unknown"),
        (("say", "shop", " "), "usage"),
        (("show", "shop"), "session.unknown"),
        (("search", "shop", "word"), "session.unknown"),
        (("reset", "shop"), "session.unknown"),
        (("fork", "shop", "copy"), "session.unknown"),
        (("delete", "shop", "--yes"), "session.unknown"),
        (("verify", "shop", "--rebuild"), "session.unknown"),
        (("compact", "shop"), "session.unknown"),
        (("show", "shop", "--turns", "-1"), "usage"),
        (("new", "shop", "--script", "s.yaml", "--window", "0"), "usage"),
    ],
)
def test_bad_input_is_refused_with_its_code(lab: Lab, words: tuple[str, ...], code: str) -> None:
    assert code_of(lab, *words, exit_=2) == code
    assert not (lab.root / "sessions" / "shop" / "session.json").exists()


@pytest.mark.requirement("context.selection")
def test_an_option_that_the_config_gives_an_engine_wrongly_is_refused_with_its_line(lab: Lab) -> None:
    create(lab)
    config = lab.folder / "proctor.toml"
    config.write_text('[context]\nengine = "window"\n\n[context.options]\ncitation = "on"\n')
    (lab.folder / "s.yaml").write_text("version: 1\nsteps:\n  - say: Yes.\n")
    error = said(lab, "say", "shop", "Hello?", "--on", "codex", "--script", "s.yaml", code=2)["error"]
    place = (error["code"], error["file"], error["line"], error["key"], error["todo"])
    assert place == ("engine.options", str(config), 5, "context.options.citation", "Did you mean `citations`?")


@pytest.mark.requirement("context.selection")
def test_an_engine_that_the_config_names_wrongly_is_refused_with_its_line(lab: Lab) -> None:
    (lab.folder / "proctor.toml").write_text('[context]\npolicy = "strict"\nengine = "losless"\n')
    done = lab.proctor("session", "new", "shop", "--model", "openai/m", "--login", "api-key", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"], error["key"], error["line"]) == (2, "engine.unknown", "context.engine", 3)
    assert "Did you mean `lossless`?" in error["todo"]
    assert not (lab.root / "sessions" / "shop").exists()


@pytest.mark.requirement("context.selection")
@pytest.mark.parametrize("where", ["new", "config"])
def test_an_engine_that_cannot_be_imported_is_named_without_a_traceback(
    where: str, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "broken-engine", points={}, modules={}, engines={"broken": "no_such_module:create"})
    monkeypatch.syspath_prepend(tmp_path / "site")
    named = '[context]\nengine = "broken"\n' if where == "config" else ""
    (lab.folder / "proctor.toml").write_text(f'plugins = ["broken"]\n{named}')
    words = () if where == "config" else ("--engine", "broken")
    done = lab.proctor("session", "new", "shop", *words, "--model", "openai/m", "--login", "api-key")
    assert (done.returncode, "runtime.broken" in done.stderr, "Traceback" in done.stderr) == (3, True, False)
    assert not (lab.root / "sessions" / "shop").exists()


def test_an_unknown_session_is_answered_with_the_command_that_creates_it(lab: Lab) -> None:
    done = lab.proctor("session", "say", "shop", "Hello?")
    assert (done.returncode, done.stdout) == (2, "")
    assert "proctor session new shop --on codex --model PROVIDER/NAME --login api-key" in done.stderr


@pytest.mark.parametrize(
    ("words", "todo"),
    [
        (("new", "desk"), "`--on codex --script FILE` for the scripted model"),
        (("new", "desk", "--on", "codx", "--script", "s.yaml"), "Did you mean `codex`?"),
        (
            ("new", "desk", "--workspace", "gone", "--model", "openai/m", "--login", "api-key"),
            "Paths are relative to the current folder, ",
        ),
        (("say", "shp", "Hello?"), "Did you mean `shop`? To create it: `proctor session new shp --on codex "),
        (("show", "shp"), "Did you mean `shop`?"),
    ],
    ids=["nothing", "runtime", "workspace", "say", "show"],
)
def test_wrong_word_is_answered_with_what_to_write(lab: Lab, words: tuple[str, ...], todo: str) -> None:
    create(lab)
    assert todo in said(lab, *words, code=2)["error"]["todo"]


@pytest.mark.requirement("session.mirror")
def test_a_session_made_again_without_its_settings_is_opened_only_by_naming_them(lab: Lab) -> None:
    root = create(lab)
    store = find_session(root, "shop").store
    store.unlink()
    done = lab.proctor("session", "verify", "shop", "--rebuild")
    assert (done.returncode, "session.db.old" in done.stdout) == (0, False)
    assert "LOST" in done.stderr
    assert "sandbox" in done.stderr
    (lab.folder / "work").mkdir()
    named = {
        "--on": "codex",
        "--workspace": str(lab.folder / "work"),
        "--model": "openai/m",
        "--login": "api-key",
        "--sandbox": "read-only",
        "--approvals": "deny",
        "--engine": "none",
    }
    for left_out in named:
        words = [word for option in named if option != left_out for word in (option, named[option])]
        refused = said(lab, "say", "shop", "Hello?", *words, code=2)["error"]
        assert (refused["code"], left_out in refused["what"], "--workspace" in refused["todo"]) == ("usage", True, True)
    options = SessionOptions(runtime="codex", workspace=lab.folder / "work", model="openai/m", login="api-key",
                             sandbox="read-only", approvals="deny", engine="none")  # fmt: skip
    chosen = settings_for(root, "shop", options)
    assert (chosen.sandbox, chosen.workspace) == ("read-only", str(lab.folder / "work"))
    own = session_home(read_header(find_session(root, "shop"))) / "workspace"
    assert settings_for(root, "shop", dataclasses.replace(options, workspace=own)).workspace is None


def test_options_replace_single_settings() -> None:
    model = choose_settings(SETTINGS, SessionOptions(model="openai/other"))
    assert (model.provider, model.model, model.login) == ("openai", "other", "api-key")
    assert choose_settings(SETTINGS, SessionOptions(sandbox="read-only")).sandbox == "read-only"
    assert choose_settings(SETTINGS, SessionOptions()) == SETTINGS


def test_a_script_replaces_the_model_and_a_model_the_script(tmp_path: Path) -> None:
    script = tmp_path / "s.yaml"
    script.write_text("version: 1\nsteps: [{say: Hello.}]\n")
    scripted = choose_settings(SETTINGS, SessionOptions(script=script))
    assert scripted == SessionSettings(runtime="codex_app_server", script=str(script))
    again = choose_settings(scripted, SessionOptions(model="openai/m", login="api-key"))
    assert again == SETTINGS


def test_a_callback_that_answered_questions_is_replaced_by_a_denial() -> None:
    asked = SessionSettings(runtime="codex_app_server", provider="openai", model="m", login="api-key", approvals="ask")
    assert choose_settings(asked, SessionOptions()).approvals == "deny"


# ── reading ──


def test_show_prints_turns_escaped_and_says_that_the_home_is_not_evidence(lab: Lab) -> None:
    root, make = create(lab), Events()
    keep(root, *make.turn(f"Where{HOSTILE}?", make.called("c"), make.returned("c", "x"), make.said(f"Here{HOSTILE}.")))
    keep(root, make.asked("Again?"), make.ended("failed"), make.settled())
    done = lab.proctor("session", "show", "shop")
    assert done.returncode == 0
    assert "They are not evidence, and not redacted." in " ".join(done.stdout.split())
    assert "user   Where\\x1b[2Jgone\\u202e\\x00?" in done.stdout
    assert "agent  Here\\x1b[2Jgone\\u202e\\x00." in done.stdout
    assert "tools  1 call" in done.stdout
    assert "failed (agent.turn-failed)" in done.stdout
    assert {"\x1b", "\u202e", "\x00"}.isdisjoint(done.stdout)
    assert [each["turn"]["n"] for each in said(lab, "show", "shop", "--turns", "1")["turns"]] == [2]


CONTEXT: dict[str, Any] = {
    "engine": "glossary", "version": "1", "policy": "degrade", "mode": "per_turn", "thread": "resume",
    "reason": "same thread", "how": "none", "sha256": Digest("sha256:1"),
}  # fmt: skip
ADDED = {"addition_sha256": Digest("sha256:2")}


@pytest.mark.requirement("context.observable")
@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "nothing to give; same thread"),
        ({"thread": "start", "reason": "no thread"}, "nothing to give; new thread: the session had none"),
        (
            {"thread": "start", "reason": "another runtime", "how": "text", "given": 1, "assembled": 2, "dropped": 1},
            "1 of 2 messages given as text, 1 left out; new thread: another runtime",
        ),
        ({**ADDED, "is_addition_given": True}, "instructions given; no messages; same thread"),
        (
            {**ADDED, "how": "items", "given": 1, "assembled": 1},
            "instructions as before; 1 of 1 messages given as items; same thread",
        ),
        (
            {"degraded": "engine glossary: assemble raised KeyError: 'x' (engine.failed)", "sha256": None},
            "did not apply: assemble raised KeyError: 'x' (engine.failed); same thread",
        ),
        (
            {**ADDED, "degraded": "codex_exec takes no instructions between turns (engine.no-place)"},
            "did not apply in full: codex_exec takes no instructions between turns (engine.no-place); same thread",
        ),
        (
            {"degraded": "`hook` raised", "how": "items", "given": 1, "assembled": 1},
            "1 of 1 messages given as items; same thread; did not apply in full: `hook` raised",
        ),
    ],
    ids=["nothing", "first", "text", "instructions", "held", "failed", "no place", "in part"],
)
def test_show_says_in_one_line_what_the_engine_did(lab: Lab, fields: dict[str, Any], line: str) -> None:
    root = create(lab)
    keep(root, *Events().turn("Hello?"), context=TurnContext(**{**CONTEXT, **fields}))
    shown = lab.proctor("session", "show", "shop").stdout.splitlines()
    assert [each.strip() for each in shown if "glossary" in each and "does not have this turn" not in each] == [
        f"engine glossary: {line}"
    ]


def test_show_exits_4_if_the_end_of_a_turn_is_unknown_and_no_process_has_the_session(lab: Lab) -> None:
    root = create(lab)
    keep(root, Events().asked("Go."), is_admitted=True)
    with hold_session_folder(find_session(root, "shop")):
        assert said(lab, "show", "shop")["summary"]["heldBy"] == os.getpid()
        assert f"open in process {os.getpid()}" in lab.proctor("session", "list").stdout
        shown = lab.proctor("session", "show", "shop")
        assert (re.findall(r"^  1  ([a-z]+)", shown.stdout, re.MULTILINE), shown.stderr) == (["running"], "")
    assert said(lab, "show", "shop", code=4)["summary"]["unsettled"] == 1
    shown = lab.proctor("session", "show", "shop")
    assert "1 turn unsettled" in shown.stdout
    assert re.findall(r"^  1  ([a-z]+)", shown.stdout, re.MULTILINE) == ["unsettled"]
    assert "settled from the record by: proctor session say shop PROMPT" in " ".join(shown.stderr.split())


def test_show_says_of_a_degraded_and_uncommitted_turn_what_to_do(lab: Lab) -> None:
    root = create(lab)
    keep(root, *Events().turn("Hello?"), context=TurnContext(**CONTEXT, degraded="engine glossary: no"))
    shown = lab.proctor("session", "show", "shop")
    assert shown.returncode == 4
    steps = " ".join(shown.stderr.split())
    assert "The engine is given the turn that it does not have again by: proctor session say shop PROMPT" in steps
    assert "To check its engine: proctor engines check glossary" in steps


def test_list_shows_the_session_that_was_asked_last_first_and_one_that_cannot_be_read(lab: Lab) -> None:
    empty = lab.proctor("session", "list")
    assert (empty.returncode, empty.stdout.partition("\n")[0]) == (0, f"No sessions in {lab.root}.")
    root = create(lab)
    create(lab, "other")
    keep(root, *Events().turn("Hello?"))
    find_session(root, "other").store.write_bytes(b"x" * 5000)
    listed = said(lab, "list")["sessions"]
    assert {each["id"]: each["turns"] for each in listed} == {"shop": 1, "other": 0}
    assert [each["problem"] is None for each in listed if each["id"] == "other"] == [False]
    assert "file is not a database" in lab.proctor("session", "list").stdout


def test_search_prints_entries_with_all_words(lab: Lab) -> None:
    root, make = create(lab), Events()
    keep(root, *make.turn("The red lamp?", make.said("In the cellar.")), *make.turn("A lamp?", make.said("Attic.")))
    assert [each["turn"] for each in said(lab, "search", "shop", "lamp")["entries"]] == [2, 1]
    assert [each["turn"] for each in said(lab, "search", "shop", "lamp", "--most", "1")["entries"]] == [2]
    assert "The red lamp?" in lab.proctor("session", "search", "shop", "red", "lamp").stdout
    assert lab.proctor("session", "search", "shop", "chair").stdout == "No entry has all of these words.\n"


# ── changing ──


def test_reset_and_fork_keep_the_mirror(lab: Lab) -> None:
    root, make = create(lab), Events()
    keep(root, *make.turn("The red lamp?", make.said("In the cellar.")))
    assert said(lab, "fork", "shop", "copy") == {"id": "copy", "forkedFrom": "shop"}
    assert code_of(lab, "fork", "shop", "copy", exit_=2) == "session.exists"
    assert said(lab, "reset", "shop") == {"id": "shop", "isReset": True, "left": []}
    assert (said(lab, "show", "shop")["historyAfter"], said(lab, "show", "copy")["historyAfter"]) == (1, 0)
    assert "the agent does not know what is above" in lab.proctor("session", "show", "shop").stdout
    for key in ("shop", "copy"):
        assert len(said(lab, "search", key, "lamp")["entries"]) == 1


def test_delete_needs_yes_without_a_terminal_and_prints_what_is_left(lab: Lab) -> None:
    root = create(lab)
    keep(root, *Events().turn("Hello?"))
    assert code_of(lab, "delete", "shop", exit_=2) == "usage"
    done = lab.proctor("session", "delete", "shop", "--yes")
    folder = lab.root / "sessions/shop"
    assert done.stdout == f"removed  {folder}\nleft     the evidence of 1 sitting, which --evidence removes\n"
    assert not folder.exists()
    assert said(lab, "list")["sessions"] == []


@pytest.mark.proctor_process
@pytest.mark.parametrize(("answer", "is_left"), [("n", True), ("y", False)])
def test_delete_asks_at_a_terminal(lab: Lab, answer: str, is_left: bool) -> None:
    root = create(lab)
    with at_a_terminal(lab, "session", "delete", "shop", "--evidence") as terminal:
        terminal.wait_for(r"Delete the session shop and its evidence\? \[y/N\]\n")
        terminal.type(f"{answer}\n")
        if is_left:
            terminal.wait_for("Nothing was deleted")
        assert terminal.process.wait(timeout=DEADLINE_S) == 0
    assert root.session(SessionKey("shop")).header.exists() is is_left


def test_delete_exits_3_if_a_folder_cannot_be_removed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    root = create(lab)

    def refuse(_: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("proctor.context.change_session.remove", refuse)
    removal = said(lab, "delete", "shop", "--yes", code=3)
    assert (removal["removed"], removal["failed"]) == ([], [f"{lab.root}/sessions/shop: Operation not permitted"])
    assert find_session(root, "shop").header.exists()


@pytest.mark.requirement("session.held")
@pytest.mark.parametrize("words", [("reset", "shop"), ("fork", "shop", "copy"), ("delete", "shop", "--yes")])
def test_a_held_session_cannot_be_changed(lab: Lab, words: tuple[str, ...]) -> None:
    root = create(lab)
    with hold_session_folder(find_session(root, "shop")):
        error = said(lab, *words, code=3)["error"]
    assert (error["code"], error["retryable"]) == ("session.held", True)
    assert error["what"] == f"the session shop is open in process {os.getpid()}"


# ── comparing ──


@pytest.mark.requirement("session.mirror")
def test_verify_reports_deleted_evidence_and_what_no_record_has(lab: Lab) -> None:
    root = create(lab)
    assert said(lab, "verify", "shop")["exit"] == 0
    keep(root, *Events().turn("Hello?"))
    found = said(lab, "verify", "shop", code=4)
    assert [each["code"] for each in found["findings"]] == ["session.no-evidence"]
    with sqlite3.connect(find_session(root, "shop").store) as connection:
        connection.execute("delete from sitting")
    done = lab.proctor("session", "verify", "shop")
    assert (done.returncode, "shop differs from its record." in done.stdout) == (5, True)


def test_verify_rebuilds_nothing_that_agrees(lab: Lab) -> None:
    root = create(lab)
    keep(root, *Events().turn("Hello?"))
    found = said(lab, "verify", "shop", "--rebuild", code=4)
    assert (found["isRebuilt"], found["turns"]) == (False, 0)
    assert len(said(lab, "show", "shop")["turns"]) == 1


@pytest.mark.parametrize("damage", [b"x" * 5000, None])
@pytest.mark.parametrize("words", [("show",), ("verify",), ("search", "word"), ("reset",), ("say", "Hello?")])
def test_a_damaged_store_exits_5_until_it_is_rebuilt(lab: Lab, words: tuple[str, ...], damage: bytes | None) -> None:
    store = find_session(create(lab), "shop").store
    store.unlink()
    if damage is not None:
        store.write_bytes(damage)
    command, *more = words
    error = said(lab, command, "shop", *more, code=5)["error"]
    assert (error["code"], "session verify shop --rebuild" in error["todo"]) == ("session.damaged", True)
    assert said(lab, "verify", "shop", "--rebuild")["isRebuilt"]
    assert said(lab, "show", "shop")["turns"] == []


# ── talking ──


def feed(streamed: StreamedText, type_: Any, **fields: Any) -> str:
    return streamed.feed(type_(frame=1, at_ms=1, turn=TurnId("t"), **fields))


def test_streamed_text_prints_each_message_once_and_escaped() -> None:
    streamed = StreamedText()
    item, other = ItemId("a"), ItemId("b")
    pieces = [
        feed(streamed, TextStreamed, item=item, text="Hel"),
        feed(streamed, TextStreamed, item=item, text="lo\x1b[2J"),
        feed(streamed, TextSaid, item=item, text="Hello\x1b[2J"),
        feed(streamed, ToolBegan, call=CallId("c"), kind="command", name="shell", input={"command": "ls\x1b"}),
        feed(streamed, ToolEnded, call=CallId("c"), kind="command", name="shell", ok=False, status="failed"),
        feed(streamed, TextSaid, item=other, text="Done."),
        streamed.end(),
    ]
    assert "".join(pieces) == "Hello\\x1b[2J\n· ls\\x1b\n· shell: failed\nDone.\n"


def read_all(data: bytes) -> list[str]:
    async def read() -> list[str]:
        ours, theirs = os.pipe()
        try:
            os.write(theirs, data)
            os.close(theirs)
            lines, found = LineReader(ours), []
            while (line := await lines.next()) is not None:
                found.append(line)
            return found
        finally:
            os.close(ours)

    return anyio.run(read)


def test_lines_are_read_up_to_the_end_without_blank_ones() -> None:
    assert read_all(b"one\r\n\n  \ntwo\xff\nthree") == ["one", "two\ufffd", "three"]
    assert read_all(b"") == []


def test_lines_are_read_from_a_file(tmp_path: Path) -> None:
    async def read() -> list[str | None]:
        with (tmp_path / "prompts").open() as file:
            lines = LineReader(file.fileno())
            return [await lines.next(), await lines.next()]

    (tmp_path / "prompts").write_text("one\n")
    assert anyio.run(read) == ["one", None]


def test_a_line_that_is_put_back_is_the_next_one() -> None:
    async def read() -> list[str | None]:
        ours, theirs = os.pipe()
        try:
            os.write(theirs, b"one\ntwo\n")
            os.close(theirs)
            lines = LineReader(ours)
            first = await lines.next()
            assert first is not None
            lines.put_back(first)
            return [await lines.next(), await lines.next(), await lines.next()]
        finally:
            os.close(ours)

    assert anyio.run(read) == ["one", "two", None]


def test_a_prompt_that_is_too_long_is_refused(tmp_path: Path) -> None:
    (tmp_path / "prompts").write_bytes(b"x" * (MAX_LINE_BYTES + 2))

    async def read() -> None:
        with (tmp_path / "prompts").open() as file:
            await LineReader(file.fileno()).next()

    with pytest.raises(InputError, match="longer than"):
        anyio.run(read)
