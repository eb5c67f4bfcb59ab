"""Which program is run, how it is started, and what is said where that cannot be."""

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import InputError, MachineError
from proctor.event.history_item import HistoryCall, HistoryItem
from proctor.ids import AttemptId, ThreadId
from proctor.runtime.base import ModelChoice, SessionRequest
from proctor.runtime.claude_code import RUNTIME, home
from proctor.runtime.claude_code.history import items_in
from proctor.runtime.claude_code.host import open_host
from proctor.runtime.claude_code.program import refuse_old
from proctor.spec.choices import Approvals, Profile, Sandbox
from proctor.testing.agent_under_test import host_asked
from tests.runtime.claude_code.real import run

OLD = "#!/bin/sh\necho '2.0.9 (Claude Code)'\n"


def test_the_named_program_comes_first_and_a_missing_one_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "claude"
    program.write_text(OLD)
    program.chmod(0o700)
    monkeypatch.delenv("PROCTOR_AGENTS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = RUNTIME.locate({})
    assert found is not None
    assert (found.path, found.source, found.is_locked) == (str(program), "system-path", None)
    monkeypatch.setenv("PROCTOR_CLAUDE", str(tmp_path / "no-such"))
    with pytest.raises(MachineError, match="install claude-agent-sdk==") as caught:
        RUNTIME.locate({})
    assert caught.value.code == "machine.binary-missing"
    monkeypatch.delenv("PROCTOR_CLAUDE")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MachineError, match="Claude Code was not found: install") as caught:
        RUNTIME.locate({})
    assert caught.value.code == "machine.binary-missing"


def test_one_that_is_too_old_is_refused_before_anything_is_asked_of_it(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text(OLD)
    program.chmod(0o700)

    async def main() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PROCTOR_CLAUDE", str(program))
            found = RUNTIME.locate({})
        assert found is not None
        async with host_asked(tmp_path, name="old", program=found) as ask:
            with pytest.raises(MachineError, match=r"2\.0\.9 is older than .*; install") as caught:
                async with open_host(ask):
                    pytest.fail("it is used")
        assert caught.value.code == "machine.binary-too-old"

    run(main)


@pytest.mark.parametrize("said", [None, "", "2.1.324 (Claude Code)", "Claude Code"])
def test_an_older_or_unknown_version_is_too_old(said: str | None) -> None:
    with pytest.raises(MachineError):
        refuse_old(said)
    assert refuse_old("2.2.0 (Claude Code)") == "2.2.0"


@pytest.mark.parametrize("options", [{"max_turns": 0}, {"max_turns": "2"}, {"max_retries": True}, {"transport": "tcp"}])
def test_options_that_there_are_not_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        RUNTIME.check_options(options)
    RUNTIME.check_options({"max_turns": 3, "max_retries": 0, "transport": "stdio"})


def session(**ask: Any) -> SessionRequest:
    whole: dict[str, Any] = {
        "attempt": AttemptId("a"),
        "workspace": Path("/w"),
        "tmp": Path("/t"),
        "sandbox": Sandbox.WORKSPACE_WRITE,
        "approvals": Approvals.DENY,
        "model": ModelChoice(provider="scripted", name="m", base_url="http://127.0.0.1:1/a/k/v1"),
    }
    return SessionRequest(**{**whole, **ask})


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        ({}, ["--setting-sources=", "--strict-mcp-config", "--no-session-persistence"]),
        ({"is_persistent": True}, ["--setting-sources=", "--strict-mcp-config"]),
        ({"profile": Profile.MINE, "options": {"max_turns": 2}}, ["--max-turns", "2", "--no-session-persistence"]),
        ({"resume": ThreadId("-x")}, ["--setting-sources=", "--strict-mcp-config", "--resume=-x"]),
        (
            {"fork": ThreadId("x"), "is_persistent": True},
            ["--setting-sources=", "--strict-mcp-config", "--resume=x", "--fork-session"],
        ),
    ],
)
def test_a_session_is_started_as_it_is_asked_for(ask: dict[str, Any], words: list[str]) -> None:
    line = home.arguments("claude", session(**ask))
    assert line[line.index("--model") + 2 :] == words


def test_what_it_keeps_is_read_without_what_is_no_part_of_the_conversation() -> None:
    lines = [
        b'{"type":"user","message":{"content":[{"type":"text","text":"Go"}]}}',
        b'{"type":"attachment","message":{"content":"x"}}',
        b'{"type":"assistant","message":{"id":"m","content":[{"type":"thinking","thinking":"Hm."}]}}',
        b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"Done."}]}}',
        b'{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"Bash"}]}}',
        b'{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}}',
        b'{"type":"user","isMeta":true,"message":{"content":"x"}}',
        b'{"type":"assistant","isSidechain":true,"message":{"id":"n","content":[{"type":"text","text":"x"}]}}',
        b"torn",
    ]
    assert list(items_in(lines)) == [
        HistoryItem(kind="prompt", text="Go"),
        HistoryItem(kind="reasoning", id="m/0", text="Hm."),
        HistoryItem(kind="message", id="m/1", text="Done."),
        HistoryItem(kind="tool", id="t", text="Bash", call=HistoryCall(kind="command", output="x", ok=True)),
    ]
