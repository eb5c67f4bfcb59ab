"""The real Codex app-server carries out what a script intends."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from codex_cli_bin import bundled_codex_path  # type: ignore[import-untyped]

from proctor.model.journal import JournalRow
from proctor.model.player import RequestKind
from proctor.model.script import Script
from proctor.model.server import ScriptedModel, open_model
from proctor.runtime.codex.catalog import catalog
from proctor.testing.journals import TEXT_BYTES

DEADLINE_S = 60
CONFIG = """
model = "proctor-scripted"
model_provider = "scripted"
model_catalog_json = "{home}/catalog.json"
check_for_update_on_startup = false
web_search = "disabled"
allow_login_shell = false
analytics.enabled = false
feedback.enabled = false
skills.bundled.enabled = false
features.plugins = false
features.shell_snapshot = false

[model_providers.scripted]
name = "scripted"
base_url = "{base_url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 2
"""


class Codex:
    """Just enough of a client to run turns on one thread."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to = process.stdin
        self._from = BufferedByteReceiveStream(process.stdout)
        self._thread = ""

    async def read(self) -> dict[str, Any]:
        line = await self._from.receive_until(b"\n", 1 << 24)
        message: dict[str, Any] = json.loads(line)
        return message

    async def send(self, method: str, params: dict[str, Any]) -> None:
        await self._to.send(json.dumps({"id": method, "method": method, "params": params}).encode() + b"\n")

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        await self.send(method, params)
        while (message := await self.read()).get("id") != method:
            pass
        return message["result"]

    async def start(self, workspace: Path) -> None:
        client = {"clientInfo": {"name": "smoke", "version": "0"}, "capabilities": {"experimentalApi": True}}
        await self.call("initialize", client)
        await self._to.send(b'{"method":"initialized"}\n')
        wanted = {
            "cwd": str(workspace),
            "ephemeral": True,
            "sandbox": "workspace-write",
            "approvalPolicy": "on-request",
            "dynamicTools": [{"name": "lookup", "description": "Looks up.", "inputSchema": {"type": "object"}}],
        }
        self._thread = (await self.call("thread/start", wanted))["thread"]["id"]

    async def turn(self, text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Runs a turn; returns how it ended and all that was said on the way. Every question is declined."""
        await self.send("turn/start", {"threadId": self._thread, "input": [{"type": "text", "text": text}]})
        said: list[dict[str, Any]] = []
        while True:
            message = await self.read()
            said.append(message)
            match message:
                case {"method": "turn/completed", "params": {"turn": turn}}:
                    return turn, said
                case {"id": question, "method": "item/tool/call"}:
                    answer = {"contentItems": [{"type": "inputText", "text": "42"}], "success": True}
                    await self._to.send(json.dumps({"id": question, "result": answer}).encode() + b"\n")
                case {"id": question, "method": _}:
                    await self._to.send(
                        json.dumps({"id": question, "result": {"decision": "decline"}}).encode() + b"\n"
                    )


@asynccontextmanager
async def open_codex(folder: Path, base_url: str) -> AsyncIterator[Codex]:
    home, temporary, workspace = folder / "home", folder / "tmp", folder / "work"
    for each in (home, temporary, workspace):
        each.mkdir(exist_ok=True)
    (home / "catalog.json").write_bytes(catalog("proctor-scripted"))
    (home / "config.toml").write_text(CONFIG.format(home=home, base_url=base_url))
    env = {"PATH": os.environ["PATH"], "CODEX_HOME": str(home), "HOME": str(home), "TMPDIR": str(temporary)}
    argv = [str(bundled_codex_path()), "app-server"]
    async with await anyio.open_process(argv, env=env, stderr=None) as process:
        try:
            codex = Codex(process)
            await codex.start(workspace)
            yield codex
        finally:
            process.kill()


def script(*steps: dict[str, Any]) -> Script:
    return msgspec.convert({"version": 1, "steps": steps}, Script)


@asynccontextmanager
async def playing(folder: Path, *steps: dict[str, Any]) -> AsyncIterator[tuple[Codex, ScriptedModel]]:
    with anyio.fail_after(DEADLINE_S):
        async with (
            open_model(text_bytes=TEXT_BYTES) as model,
            open_codex(folder, model.play("one", script(*steps))) as codex,
        ):
            yield codex, model


def outline(rows: tuple[JournalRow, ...]) -> list[tuple[RequestKind, int | None, int]]:
    return [(row.kind, row.step, row.try_number) for row in rows]


@pytest.mark.real_agent
@pytest.mark.requirement("model.scripted")
def test_intents_happen_in_the_workspace(tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "greet.py").write_text('import sys\nprint("Hello, Bob")\nsys.exit()\n')
    (workspace / "old.txt").write_text("old\n")
    (workspace / "gone.txt").write_text("gone\n")
    steps: list[dict[str, Any]] = [
        {"think": "First the shell.", "run": "echo hi > out.txt && echo seen", "usage": {"input": 100, "cached": 40}},
        {"patch": {"file": "greet.py", "old": 'print("Hello, Bob")', "new": 'print("Hello, Ada")\nprint("Bye")'}},
        {
            "do": [
                {"patch": {"file": "sub/new.txt", "content": "one\n\ntwo"}},
                {"patch": {"file": "old.txt", "content": "new\n"}},
                {"patch": {"file": "gone.txt", "delete": True}},
            ]
        },
        {"call": {"tool": "lookup", "arguments": {"q": 1}}},
        {"say": {"text": "All done.", "chunk_chars": 4}, "usage": {"input": 50, "output": 7, "reasoning": 3}},
    ]

    async def main() -> tuple[dict[str, Any], list[dict[str, Any]], tuple[JournalRow, ...]]:
        async with playing(tmp_path, *steps) as (codex, model):
            turn, said = await codex.turn("Fix the greeting.")
            return turn, said, model.journal("one")

    turn, said, rows = anyio.run(main)
    assert turn["status"] == "completed"
    files = {str(f.relative_to(workspace)): f.read_text() for f in workspace.rglob("*") if f.is_file()}
    assert files == {
        "out.txt": "hi\n",
        "greet.py": 'import sys\nprint("Hello, Ada")\nprint("Bye")\nsys.exit()\n',
        "sub/new.txt": "one\n\ntwo\n",
        "old.txt": "new\n",
    }
    assert outline(rows) == [(RequestKind.MAIN, step, 0) for step in range(len(steps))]
    assert rows[0].texts[-1] == "Fix the greeting."
    assert "seen" in rows[1].texts[-1]
    assert rows[4].texts[-1] == "42"
    deltas = [m["params"]["delta"] for m in said if m.get("method") == "item/agentMessage/delta"]
    assert deltas == ["All ", "done", "."]
    thoughts = [m["params"]["delta"] for m in said if m.get("method") == "item/reasoning/summaryTextDelta"]
    assert thoughts == ["First the shell."]
    usages = [m["params"]["tokenUsage"]["last"] for m in said if m.get("method") == "thread/tokenUsage/updated"]
    assert (usages[0]["inputTokens"], usages[0]["cachedInputTokens"]) == (100, 40)
    assert (usages[-1]["inputTokens"], usages[-1]["outputTokens"], usages[-1]["reasoningOutputTokens"]) == (50, 7, 3)


@pytest.mark.real_agent
def test_a_stream_cut_after_a_finished_call_is_retried_without_losing_a_step(tmp_path: Path) -> None:
    cut = {"run": "echo once >> out.txt", "fault": {"cut_after": 5}}

    async def main() -> tuple[dict[str, Any], tuple[JournalRow, ...]]:
        steps = ({"tries": [{"fault": {"status": 503}}, cut, {"say": "Back."}]}, {"say": "Next."})
        async with playing(tmp_path, *steps) as (codex, model):
            await codex.turn("Go.")
            turn, _ = await codex.turn("Again.")
            return turn, model.journal("one")

    turn, rows = anyio.run(main)
    assert outline(rows) == [
        (RequestKind.FAULT, 0, 0),
        (RequestKind.FAULT, 0, 1),
        (RequestKind.RETRY, 0, 2),
        (RequestKind.MAIN, 1, 0),
    ]
    assert turn["items"][-1]["text"] == "Next."
    assert (tmp_path / "work" / "out.txt").read_text() == "once\n"
