"""`proctor session` on the real agents: conversations over several processes, at a terminal, held, killed, deleted."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.context.kept_session import find_session, session_home
from proctor.context.report import report_session
from proctor.evidence.layout import RootPaths
from tests.lab import DEADLINE_S, Lab, wait_until
from tests.scripted_engine import offer_engine
from tests.terminal import at_a_terminal

pytestmark = pytest.mark.real_agent

AGENTS = [
    pytest.param("codex", id="codex"),
    pytest.param("claude", id="claude", marks=pytest.mark.agent("claude_code")),
]

FULL = {"failed": {"code": "context_length_exceeded", "message": "too long"}}


def script(lab: Lab, name: str, *steps: Any) -> str:
    file = lab.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "steps": [{"say": s} if isinstance(s, str) else s for s in steps]}))
    return file.name


def said(lab: Lab, *words: str, code: int = 0, **env: str) -> Any:
    done = lab.proctor("session", *words, "--json", **env)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def begin(lab: Lab, *steps: Any, on: str = "codex", key: str = "shop", prompt: str = "Where is the lamp?") -> Any:
    """Create a session, and ask the first turn."""
    said(lab, "new", key, "--on", on, "--script", script(lab, f"{key}-1", *(steps or ("In the cellar.",))))
    return said(lab, "say", key, prompt)


def attempt_of(asked: Any, lab: Lab) -> Any:
    return json.loads((lab.folder / asked["dir"] / "attempt.json").read_text())


@contextmanager
def talking(lab: Lab, key: str, *words: str) -> "Iterator[subprocess.Popen[str]]":
    """`session talk` in another process, which has asked one turn and waits for the next prompt."""
    with subprocess.Popen(
        [sys.executable, "-m", "proctor", "session", "talk", key, *words],
        env={**os.environ, "PROCTOR_ROOT": str(lab.root), **lab.env},
        cwd=lab.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("Hello?\n")
            process.stdin.flush()
            assert process.stdout.readline() == "Hello.\n"
            yield process
        finally:
            process.kill()


# ── over several processes ──


@pytest.mark.long
@pytest.mark.proctor_process
@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("agent", AGENTS)
def test_session_continues_in_another_process(lab: Lab, agent: str) -> None:
    lab.is_other_agent_allowed = agent != "codex"
    first = begin(lab, {"run": "echo zanzibar"}, "In the cellar.", on=agent)
    assert (first["answer"], first["turn"]["n"], first["toolCalls"], first["exit"]) == ("In the cellar.", 1, 1, 0)
    again = script(lab, "again", "In the cellar, as I said.")
    done = lab.proctor_process("session", "say", "shop", "Where was it?", "--script", again)
    assert (done.returncode, done.stdout) == (0, "In the cellar, as I said.\n")
    assert done.stderr.startswith("turn 2 completed  0 tool calls  ")

    shown = said(lab, "show", "shop")
    assert [each["turn"]["sitting"] for each in shown["turns"]] == [1, 2]
    assert [each["messages"][-1]["part"]["text"] for each in shown["turns"]] == [first["answer"], done.stdout.strip()]
    second = {"dir": done.stderr.split()[-1]}
    sittings = [attempt_of(each, lab)["sitting"] for each in (first, second)]
    assert [(each["n"], each["isFresh"], each["firstTurn"]) for each in sittings] == [(1, True, 1), (2, False, 2)]
    threads = {
        json.loads((lab.folder / each["dir"] / "runner.ref.json").read_text())["threadId"] for each in (first, second)
    }
    assert threads == {shown["binding"]["thread"]}
    assert [each["turn"] for each in said(lab, "search", "shop", "cellar")["entries"]] == [2, 1]
    assert len(said(lab, "search", "shop", "zanzibar")["entries"]) == 2, "the call and its result"
    verified = said(lab, "verify", "shop")
    assert (verified["turns"], verified["findings"]) == (2, [])
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("session.one")
def test_say_creates_a_session_and_reads_the_prompt_from_stdin(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with (lab.folder / "prompt").open("w+") as file:
        file.write("Where is\nthe lamp?\n")
        file.seek(0)
        monkeypatch.setattr("sys.stdin", file)
        asked = said(lab, "say", "shop", "-", "--on", "codex", "--script", script(lab, "s", "Hostile \x1b[2J text."))
    assert asked["answer"] == "Hostile \x1b[2J text."
    assert said(lab, "show", "shop")["turns"][0]["messages"][0]["part"]["text"] == "Where is\nthe lamp?\n"
    done = lab.proctor("session", "say", "shop", "Again?")
    assert (done.returncode, done.stdout) == (0, "Hostile \\x1b[2J text.\n")


@pytest.mark.requirement("session.one")
@pytest.mark.requirement("session.mirror")
def test_reset_session_begins_a_new_thread_and_keeps_the_mirror(lab: Lab) -> None:
    first = begin(lab)
    said(lab, "reset", "shop")
    second = said(lab, "say", "shop", "Where is the chair?")
    sittings = [attempt_of(each, lab)["sitting"] for each in (first, second)]
    assert [(each["isFresh"], each["historyAfter"]) for each in sittings] == [(True, 0), (True, 1)]
    assert [each["turn"] for each in said(lab, "search", "shop", "cellar")["entries"]] == [2, 1]
    assert said(lab, "verify", "shop")["exit"] == 0


@pytest.mark.requirement("session.one")
def test_forked_session_and_its_origin_continue_without_each_other(lab: Lab) -> None:
    begin(lab)
    said(lab, "fork", "shop", "copy")
    said(lab, "say", "copy", "And the chair?", "--script", script(lab, "copy", "In the hall."))
    said(lab, "say", "shop", "And the table?", "--script", script(lab, "more", "In the attic."))
    found = {key: [each["turn"] for each in said(lab, "search", key, "the")["entries"]] for key in ("shop", "copy")}
    assert found == {"shop": [2, 2, 1, 1], "copy": [2, 2, 1, 1]}
    assert (said(lab, "search", "shop", "hall")["entries"], said(lab, "search", "copy", "attic")["entries"]) == ([], [])
    removed = said(lab, "delete", "copy", "--evidence", "--yes")
    assert removed["failed"] == []
    assert said(lab, "verify", "shop")["exit"] == 0, "the evidence of the origin is still there"


def test_compaction_is_a_turn_of_the_agent(lab: Lab) -> None:
    begin(lab)
    compacted = said(lab, "compact", "shop")
    assert compacted["compaction"]["status"] in ("compacted", "no_progress")
    turn = said(lab, "show", "shop")["turns"][-1]["turn"]
    assert (turn["kind"], turn["outcome"]) == ("compaction", "completed")


@pytest.mark.agent("claude_code")
def test_compaction_without_an_engine_needs_no_turn_in_its_sitting(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    said(lab, "new", "shop", "--on", "claude", "--script", script(lab, "s", "In the cellar."), "--engine", "none")
    said(lab, "say", "shop", "Where is the lamp?")
    compacted = said(lab, "compact", "shop")
    assert compacted["compaction"]["status"] in ("compacted", "no_progress")
    assert said(lab, "show", "shop")["turns"][-1]["turn"]["kind"] == "compaction"


@pytest.mark.requirement("context.compaction")
def test_engine_of_a_fork_takes_in_the_history_before_it_compacts(lab: Lab) -> None:
    begin(lab, {"run": "echo zanzibar"}, "In the cellar.")
    said(lab, "say", "shop", "Where was it again?")
    said(lab, "fork", "shop", "copy")
    compaction = said(lab, "compact", "copy")["compaction"]
    assert compaction["tokensBefore"] > compaction["tokensAfter"] > 0


def test_compaction_shows_the_result_of_the_agent_too(lab: Lab) -> None:
    begin(lab)
    shown = lab.proctor("session", "compact", "shop")
    native = r"  codexNativeCompaction: (compacted|no progress): [\d,]+ → [\d,]+ tokens( \(.*\))?"
    assert re.fullmatch(native, shown.stdout.splitlines()[-1]), shown.stdout


# ── how turns end ──


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (FULL, 1),
        ({"status": 401, "body": {"error": {"message": "no"}}}, 3),
    ],
)
def test_say_exits_with_who_caused_the_failure(lab: Lab, fault: Any, code: int) -> None:
    # Without an engine: one would retry a turn that is too long on a new thread.
    said(lab, "new", "shop", "--script", script(lab, "s", {"fault": fault}), "--engine", "none")
    asked = said(lab, "say", "shop", "Hello?", code=code)
    assert (asked["exit"], asked["turn"]["state"], asked["turn"]["outcome"]) == (code, "discarded", "failed")
    done = lab.proctor("session", "say", "shop", "Hello?")
    assert (done.returncode, done.stdout) == (code, "")
    assert f"turn 2 failed ({asked['turn']['code']})" in done.stderr
    assert said(lab, "show", "shop")["summary"]["discarded"] == 2


@pytest.mark.proctor_process
def test_interrupted_turn_is_recorded_as_cancelled(lab: Lab) -> None:
    said(lab, "new", "shop", "--script", script(lab, "s", {"delay": "100s"}))
    process = lab.start("session", "say", "shop", "Hello?")
    wait_until(lambda: said_admitted(lab) == 1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=DEADLINE_S) == 130
    [turn] = [each["turn"] for each in said(lab, "show", "shop")["turns"]]
    assert (turn["state"], turn["outcome"], turn["code"]) == ("discarded", "cancelled", "run.cancelled")
    lab.assert_all_evidence_is_valid()


def said_admitted(lab: Lab) -> int:
    return report_session(RootPaths(lab.root), "shop").summary.unsettled


def printed(lab: Lab) -> str:
    return lab.proctor("session", "show", "shop").stdout


@pytest.mark.proctor_process
@pytest.mark.requirement("session.mirror")
def test_turn_of_a_killed_process_is_settled_from_its_record(lab: Lab) -> None:
    begin(lab)
    script(lab, "shop-1", {"delay": "100s"})
    process = lab.start("session", "say", "shop", "Hello?")
    wait_until(lambda: said_admitted(lab) == 1)
    assert said(lab, "show", "shop")["summary"]["heldBy"] == process.pid
    assert re.search(r"^  2  running .*\n     user   Hello\?$", printed(lab), re.MULTILINE)
    process.kill()
    process.wait(timeout=DEADLINE_S)
    assert said(lab, "show", "shop", code=4)["summary"]["unsettled"] == 1
    script(lab, "shop-1", "In the cellar.")
    said(lab, "say", "shop", "Where is it?")
    states = [each["turn"]["state"] for each in said(lab, "show", "shop")["turns"]]
    assert states == ["acknowledged", "discarded", "acknowledged"]
    assert re.search(r"^  2  .*\n     user   Hello\?\n     record .*session-1\.1$", printed(lab), re.MULTILINE)
    assert said(lab, "verify", "shop")["findings"] == []


# ── held, talked in, deleted ──


@pytest.mark.proctor_process
@pytest.mark.requirement("session.held")
def test_second_holder_gets_the_process_of_the_first_at_once(lab: Lab) -> None:
    said(lab, "new", "shop", "--script", script(lab, "s", "Hello."))
    with talking(lab, "shop") as process:
        for words in (("say", "shop", "Me too?"), ("compact", "shop"), ("delete", "shop", "--yes"), ("reset", "shop")):
            error = said(lab, *words, code=3)["error"]
            assert (error["code"], error["what"]) == (
                "session.held",
                f"the session shop is open in process {process.pid}",
            )
        assert said(lab, "show", "shop")["summary"]["heldBy"] == process.pid
        assert process.poll() is None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=DEADLINE_S) == 0
    assert said(lab, "say", "shop", "And now?")["turn"]["n"] == 2


@pytest.mark.proctor_process
def test_talk_asks_each_line_of_stdin(lab: Lab) -> None:
    said(lab, "new", "shop", "--script", script(lab, "s", "One.", {"fault": FULL}, "Three."), "--engine", "none")
    with (lab.folder / "prompts").open("w+") as file:
        file.write("first\n\nsecond\nthird")
        file.seek(0)
        done = subprocess.run(
            [sys.executable, "-m", "proctor", "session", "talk", "shop", "--json"],
            env={**os.environ, "PROCTOR_ROOT": str(lab.root)},
            cwd=lab.folder,
            stdin=file,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    turns = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["turn"]["n"], each["answer"], each["exit"]) for each in turns] == [
        (1, "One.", 0),
        (2, None, 1),
        (3, "Three.", 0),
    ]
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.proctor_process
def test_talk_at_a_terminal_streams_steers_and_interrupts(lab: Lab) -> None:
    begun = {"do": [{"say": "I begin. "}, {"delay": "100s"}]}
    said(lab, "new", "shop", "--script", script(lab, "s", begun, "Left it is.", begun, "Done\x1b[2J."))
    with at_a_terminal(lab, "session", "talk", "shop", is_stdout_shown=True) as terminal:
        terminal.wait_for("> ")
        terminal.type("Go right.\n")
        terminal.wait_for("I begin.")
        terminal.type("No, left.\n")
        terminal.wait_for("Left it is.")
        terminal.wait_for(r"turn 1 completed .*\n> ")
        terminal.type("Go on.\n")
        terminal.wait_for("I begin.")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for(r"turn 2 cancelled .*\n> ")
        terminal.type("And?\n")
        terminal.wait_for(r"Done\\x1b\[2J\.\n")
        terminal.wait_for(r"turn 3 completed .*\n> ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(timeout=DEADLINE_S) == 0
    shown = said(lab, "show", "shop")["turns"]
    assert [each["turn"]["outcome"] for each in shown] == ["completed", "cancelled", "completed"]
    assert [each["part"]["text"] for each in shown[0]["messages"] if each["part"]["type"] == "user"] == [
        "Go right.",
        "No, left.",
    ]
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("session.held")
@pytest.mark.parametrize(("words", "field"), [(("delete", "shop", "--yes"), "failed"), (("reset", "shop"), "left")])
def test_engine_that_does_not_forget_is_named_and_the_exit_is_3(
    words: tuple[str, ...], field: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = offer_engine(lab.folder, monkeypatch)
    options = ("--on", "codex", "--engine", "scripted", "--script", script(lab, "s", "In the cellar."))
    said(lab, "say", "shop", "Where?", *options)
    engine.failures[f"forget {words[0]}"] = [ValueError("it is elsewhere")]
    [problem] = said(lab, *words, code=3)[field]
    assert "the engine scripted" in problem
    assert "it is elsewhere" in problem
    assert (lab.root / "sessions" / "shop").exists() is (words[0] == "reset")


@pytest.mark.requirement("session.held")
@pytest.mark.parametrize("agent", AGENTS)
def test_deleted_session_is_only_in_its_evidence_and_then_nowhere(lab: Lab, agent: str) -> None:
    lab.is_other_agent_allowed = agent != "codex"
    state, cache = lab.folder / "state", lab.folder / "cache"
    lab.env = {"XDG_STATE_HOME": str(state), "XDG_CACHE_HOME": str(cache)}
    word, other = "zanzibar", "honolulu"
    begin(lab, {"run": f"echo {other} > note.txt; echo {word}"}, f"It is {word}.", on=agent, prompt=f"Find {word}.")
    root = RootPaths(lab.root)
    paths = find_session(root, "shop")
    assert files_with(word, lab.root, state) >= {paths.store}
    assert any(file.is_relative_to(paths.engines) for file in files_with(word, lab.root)), "the engine has it too"
    assert any(file.is_relative_to(state) for file in files_with(word, state)), "the agent keeps its thread"
    assert {file.name for file in files_with(other, state)} >= {"note.txt"}

    removal = said(lab, "delete", "shop", "--yes")
    assert len(removal["removed"]) == 2
    assert removal["left"] == ["the evidence of 1 sitting, which --evidence removes"]
    assert removal["failed"] == []
    assert files_with(word, state, cache) == set()
    left = files_with(word, lab.root)
    assert left
    assert all(file.is_relative_to(lab.root / "runs") for file in left)

    begin(lab, f"It is {other}.", on=agent, key="other", prompt=f"Find {other}.")
    removal = said(lab, "delete", "other", "--evidence", "--yes")
    assert removal["left"] == []
    assert len(removal["removed"]) == 3
    assert files_with("Find honolulu", lab.root, state, cache) == set()


def files_with(word: str, *folders: Path) -> set[Path]:
    return {
        file
        for folder in folders
        for file in folder.rglob("*")
        if file.is_file() and not file.is_symlink() and word.encode() in file.read_bytes()
    }


@pytest.mark.requirement("session.held")
def test_home_of_a_session_is_private_and_shown(lab: Lab) -> None:
    begin(lab)
    shown = said(lab, "show", "shop")
    home = Path(shown["home"])
    assert (home, home.stat().st_mode & 0o777) == (
        session_home(report_session(RootPaths(lab.root), "shop").header),
        0o700,
    )
    printed = " ".join(lab.proctor("session", "show", "shop").stdout.split())
    assert "The agents' homes and the workspace. They are not evidence, and not redacted." in printed


@pytest.mark.requirement("context.observable")
def test_show_exits_4_after_one_degraded_turn(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = offer_engine(lab.folder, monkeypatch)
    options = ("--on", "codex", "--engine", "scripted")
    asked = said(lab, "say", "shop", "Where?", *options, "--script", script(lab, "s", "In the cellar.", "Yes."))
    assert (asked["turn"]["context"]["engine"], asked["exit"]) == ("scripted", 0)
    said(lab, "show", "shop")
    engine.failures["assemble"] = [ValueError("not today")]
    said(lab, "say", "shop", "Sure?")
    assert "not today" in said(lab, "show", "shop", code=4)["turns"][-1]["turn"]["context"]["degraded"]
    said(lab, "say", "shop", "And now?")
    assert said(lab, "show", "shop", code=4)["summary"]["degraded"] == 1, "it stays marked"
    assert said(lab, "list")["sessions"][0]["degraded"] == 1


# ── compared with the record ──


@pytest.mark.requirement("session.mirror")
def test_edited_entry_differs_from_the_record_until_it_is_rebuilt(lab: Lab) -> None:
    begin(lab, {"run": "echo zanzibar"}, "In the cellar.")
    said(lab, "say", "shop", "Really?", "--script", script(lab, "again", "Yes."))
    before = said(lab, "show", "shop")
    store = find_session(RootPaths(lab.root), "shop").store
    with sqlite3.connect(store) as connection:
        connection.execute(
            "update entry set message = cast(replace(cast(message as text), 'cellar', 'garden') as blob) where n = 4"
        )
    found = said(lab, "verify", "shop", code=5)
    assert [each["code"] for each in found["findings"]] == ["session.differs"]
    assert "differs from the record" in found["findings"][0]["detail"]
    assert said(lab, "verify", "shop", "--rebuild")["isRebuilt"]
    assert said(lab, "verify", "shop")["findings"] == []
    after = said(lab, "show", "shop")
    assert {**after, "sittings": []} == {**before, "sittings": []}
    store.write_bytes(store.read_bytes()[:5000])
    assert said(lab, "show", "shop", code=5)["error"]["code"] == "session.damaged"
    assert said(lab, "verify", "shop", code=5)["error"]["code"] == "session.damaged"
    rebuilt = said(lab, "verify", "shop", "--rebuild")
    assert (rebuilt["exit"], rebuilt["lost"]) == (0, ["workspace", "model", "engine"])
    assert said(lab, "show", "shop")["turns"] == before["turns"]
    words = ("say", "shop", "Once more?", "--on", "codex", "--script", script(lab, "last", "Yes."))
    assert said(lab, *words, code=2)["error"]["code"] == "usage"
    own = str(Path(after["home"]) / "workspace")
    said(lab, *words, "--engine", "lossless", "--workspace", own)
    assert said(lab, "show", "shop")["lost"] == []
