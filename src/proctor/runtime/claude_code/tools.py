"""Proctor's tools for the agent: an MCP (Model Context Protocol) server whose messages are control requests."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from proctor import __version__
from proctor.runtime.base import Tool
from proctor.runtime.claude_code.questions import Answer
from proctor.runtime.claude_code.results import SERVER

_METHOD_NOT_FOUND: Final = -32601


def mcp_config() -> str:
    """Return the value of `--mcp-config`: a server whose messages the program sends to Proctor."""
    return msgspec.json.encode({"mcpServers": {SERVER: {"type": "sdk", "name": SERVER}}}).decode()


def find_called_tool(tools: Sequence[Tool], message: Mapping[str, Any]) -> tuple[Tool, Any] | None:
    """Return the tool that a message calls, and its arguments; None if the message is not a tool call."""
    params = message.get("params")
    if message.get("method") != "tools/call" or not isinstance(params, dict):
        return None
    tool = next((tool for tool in tools if tool.name == params.get("name")), None)
    return None if tool is None else (tool, params.get("arguments"))


def reply_to(tools: Sequence[Tool], message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the reply to a message that calls no tool."""
    params = message.get("params")
    match message.get("method"):
        case "initialize":
            version = params.get("protocolVersion") if isinstance(params, dict) else None
            about = {"name": SERVER, "version": __version__}
            return _response(message, protocolVersion=version, capabilities={"tools": {}}, serverInfo=about)
        case "tools/list":
            return _response(message, tools=[_definition(tool) for tool in tools])
        case "ping":
            return _response(message)
        case str(method) if "id" in message:
            error = {"code": _METHOD_NOT_FOUND, "message": f"Proctor does not know {method}"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
        case _:
            # A notification needs no reply, but the control request that carries it does.
            return {"jsonrpc": "2.0", "result": {}}


def success_answer(message: Mapping[str, Any], result: Any) -> Answer:
    """Return the answer for a tool's result. Raises if it is not text, or cannot be encoded."""
    if not isinstance(result, str):
        raise TypeError(f"a tool must return a str, not {type(result).__name__}")
    # A subclass of str may override `__str__`.
    text = str.__str__(result)
    text.encode()
    return _answer(message, text, decision="answered", is_error=False)


def failure_answer(message: Mapping[str, Any], why: str) -> Answer:
    """Return the answer for a failed call. The turn continues."""
    return _answer(message, why, decision="failed", is_error=True)


def _answer(message: Mapping[str, Any], text: str, *, decision: str, is_error: bool) -> Answer:
    response = _response(message, content=[{"type": "text", "text": text}], isError=is_error)
    return Answer(decision=decision, body={"mcp_response": response})


def _response(message: Mapping[str, Any], **result: Any) -> Mapping[str, Any]:
    return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}


def _definition(tool: Tool) -> Mapping[str, Any]:
    # Otherwise the model must search for the tool first.
    always = {"anthropic/alwaysLoad": True}
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.schema, "_meta": always}
