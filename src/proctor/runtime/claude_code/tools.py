"""Tools of ours that the agent may call: a server of the Model Context Protocol, spoken to over control requests."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from proctor import __version__
from proctor.runtime.base import Tool
from proctor.runtime.claude_code.questions import Answer
from proctor.runtime.claude_code.results import SERVER

_METHOD_NOT_FOUND: Final = -32601


def mcp_config() -> str:
    """`--mcp-config`: a server whose messages come to us."""
    return msgspec.json.encode({"mcpServers": {SERVER: {"type": "sdk", "name": SERVER}}}).decode()


def find_called_tool(tools: Sequence[Tool], message: Mapping[str, Any]) -> tuple[Tool, Any] | None:
    """The tool that a message calls, and what it is given; None where it is another message."""
    params = message.get("params")
    if message.get("method") != "tools/call" or not isinstance(params, dict):
        return None
    tool = next((tool for tool in tools if tool.name == params.get("name")), None)
    return None if tool is None else (tool, params.get("arguments"))


def reply_to(tools: Sequence[Tool], message: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the server says to any message that calls no tool."""
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
            # A notification wants no reply, but the request that carries it does.
            return {"jsonrpc": "2.0", "result": {}}


def success_answer(message: Mapping[str, Any], result: Any) -> Answer:
    """What a tool gave. Raises where it is no text, or none that can be sent."""
    if not isinstance(result, str):
        raise TypeError(f"a tool must return a str, not {type(result).__name__}")
    # A subclass may say of itself what it likes.
    text = str.__str__(result)
    text.encode()
    return _answer(message, text, decision="answered", is_error=False)


def failure_answer(message: Mapping[str, Any], why: str) -> Answer:
    """Return the answer for a failed call. The turn continues."""
    return _answer(message, why, decision="failed", is_error=True)


def _answer(message: Mapping[str, Any], text: str, *, decision: str, is_error: bool) -> Answer:
    said = _response(message, content=[{"type": "text", "text": text}], isError=is_error)
    return Answer(decision=decision, body={"mcp_response": said})


def _response(message: Mapping[str, Any], **result: Any) -> Mapping[str, Any]:
    return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}


def _definition(tool: Tool) -> Mapping[str, Any]:
    # Else the model must look for it first.
    always = {"anthropic/alwaysLoad": True}
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.schema, "_meta": always}
