"""The caller's tools in the app-server protocol: their definitions, and the answers to calls."""

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.runtime.base import Tool
from proctor.runtime.codex_app_server.policy import Answer, tool_answer


def tool_definitions(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return the `dynamicTools` of thread/start."""
    return [
        {"type": "function", "name": tool.name, "description": tool.description, "inputSchema": tool.schema}
        for tool in tools
    ]


def find_tool(tools: Sequence[Tool], params: Mapping[str, Any]) -> Tool | None:
    """Return the tool that an item/tool/call names. None if it is not offered."""
    return next((tool for tool in tools if tool.name == params.get("tool")), None)


def success_answer(result: Any) -> Answer:
    """Return the answer for a tool's result. Raises TypeError or UnicodeError if it is not a str that can be sent."""
    if not isinstance(result, str):
        raise TypeError(f"a tool must return a str, not {type(result).__name__}")
    # A subclass may override __str__.
    text = str.__str__(result)
    text.encode()
    return tool_answer(text, decision="answered", is_success=True)


def failure_answer(why: str) -> Answer:
    """Return the answer for a failed call. The turn continues."""
    return tool_answer(why, decision="failed", is_success=False)
