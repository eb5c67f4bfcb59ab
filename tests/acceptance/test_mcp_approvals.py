"""Calls of MCP tools are approved like any other action: by the flow's `approvals`, on record with who decided."""

import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.evidence.layout import AttemptPaths
from proctor.runtime.base import Decision, Question
from tests.lab import Lab, jsonl, mission, say_done

SERVER = """
import json, sys, time

TOOL = {"name": "add", "description": "Add two numbers.", "inputSchema": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}


def answer(method, params):
    if method == "initialize":
        time.sleep(float(sys.argv[1]))
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "kit", "version": "1"}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        total = params["arguments"]["a"] + params["arguments"]["b"]
        return {"content": [{"type": "text", "text": f"the sum is {total}"}], "isError": False}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def give_server(home: Path, *, starts_in_s: float = 0) -> None:
    """Give the user's Codex a small MCP server."""
    server = home.parent / "server.py"
    server.write_text(SERVER)
    words = f'args = ["{server}", "{starts_in_s}"]'
    (home / "config.toml").write_text(f'[mcp_servers.kit]\ncommand = "{sys.executable}"\n{words}\n')


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own settings of Codex."""
    home = tmp_path / "user" / ".codex"
    home.mkdir(parents=True)
    give_server(home)
    monkeypatch.setenv("HOME", str(home.parent))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    return home


def run(lab: Lab, approvals: str, **how: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Let Codex call the tool. Return the recorded call, and who decided what."""
    call = {"call": {"tool": "mcp__kit.add", "arguments": {"a": 20, "b": 22}}}
    flow = {"profile": "mine", "approvals": approvals}
    lab.run(lab.write_spec([mission("add", call, say_done())], flow=flow), **how)
    [paths] = lab.attempts().values()
    [row] = jsonl(paths.tool_calls)
    lab.assert_all_evidence_is_valid()
    return row, decisions(paths)


def decisions(paths: AttemptPaths) -> list[tuple[str, str]]:
    seen = [row["frame"] for row in jsonl(paths.frames)]
    return [(each["decision"], each["by"]) for each in seen if each.get("saw") == "approval.resolved"]


pytestmark = [pytest.mark.real_agent, pytest.mark.requirement("evidence.trace")]


@pytest.mark.parametrize("starts_in_s", [0, 3])
def test_mcp_tool_is_called_if_the_flow_accepts(lab: Lab, user: Path, starts_in_s: float) -> None:
    give_server(user, starts_in_s=starts_in_s)
    call, decided = run(lab, "accept")
    assert (call["kind"], call["name"], call["ok"]) == ("mcp", "kit/add", True)
    assert "the sum is 42" in str(call["output"])
    assert decided == [("accept", "policy")]


@pytest.mark.parametrize("approvals", ["deny", "workspace"])
def test_mcp_tool_is_not_called_unless_the_flow_accepts(lab: Lab, user: Path, approvals: str) -> None:
    call, decided = run(lab, approvals)
    assert (call["kind"], call["name"], call["ok"]) == ("mcp", "kit/add", False)
    assert "the sum is" not in str(call["output"])
    assert decided == [("decline", "policy")]


@pytest.mark.parametrize("decision", [Decision.ACCEPT, Decision.DENY])
def test_callback_decides_about_an_mcp_tool(lab: Lab, user: Path, decision: Decision) -> None:
    asked: list[Question] = []

    async def decide(question: Question) -> Decision:
        asked.append(question)
        return decision

    call, decided = run(lab, "ask", decide=decide)
    assert call["ok"] is (decision is Decision.ACCEPT)
    assert [by for _, by in decided] == ["callback"]
    [question] = asked
    assert (question.about, question.reason) == ("mcp tool", 'Allow the kit MCP server to run tool "add"?')
