"""Results of MCP tool calls, as Codex reports them."""

from typing import Any


def is_mcp_error(result: Any) -> bool:
    """Return whether the result of an MCP call reports that the tool failed.

    >>> is_mcp_error({"content": [], "isError": True}), is_mcp_error({"content": []}), is_mcp_error(None)
    (True, False, False)
    """
    return isinstance(result, dict) and bool(result.get("isError") or result.get("is_error"))
