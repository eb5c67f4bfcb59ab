"""Tools of ours that the agent may call: how they are offered, and what a call of one comes to."""

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.runtime.base import Tool
from proctor.runtime.codex_app_server.policy import Answer, tool_answer


def offered(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """thread/start `dynamicTools`."""
    return [
        {"type": "function", "name": tool.name, "description": tool.description, "inputSchema": tool.schema}
        for tool in tools
    ]


def named(tools: Sequence[Tool], params: Mapping[str, Any]) -> Tool | None:
    """The tool that an item/tool/call is for."""
    return next((tool for tool in tools if tool.name == params.get("tool")), None)


def answered(given: Any) -> Answer:
    """What a tool gave. Raises where it is no text, or none that can be sent."""
    if not isinstance(given, str):
        raise TypeError(f"a tool gives a str, not {type(given).__name__}")
    # A subclass may say of itself what it likes.
    text = str.__str__(given)
    text.encode()
    return tool_answer(text, decision="answered", is_success=True)


def failed(why: str) -> Answer:
    """The agent is told, and goes on."""
    return tool_answer(why, decision="failed", is_success=False)
