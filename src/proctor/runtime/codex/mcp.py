"""What MCP servers answer, as Codex hands it on."""

from typing import Any


def is_mcp_error(result: Any) -> bool:
    """A call that came through may still have failed, and says so in what it gives back.

    >>> is_mcp_error({"content": [], "isError": True}), is_mcp_error({"content": []}), is_mcp_error(None)
    (True, False, False)
    """
    return isinstance(result, dict) and bool(result.get("isError") or result.get("is_error"))
