"""Convert thread items of the app-server, live or stored, to Proctor's terms. Pure."""

from collections.abc import Iterator
from typing import Any

import msgspec

from proctor.event.history import tool_digest
from proctor.event.history_item import HistoryCall, HistoryItem
from proctor.event.model import ToolEnded, ToolKind
from proctor.event.row import Row
from proctor.ids import CallId, TurnId
from proctor.runtime.codex.mcp import is_mcp_error
from proctor.runtime.codex_app_server import wire

MESSAGES = frozenset({"agentMessage", "plan"})


def tool_of(item: wire.Item) -> tuple[ToolKind, str, Any] | None:
    """Return kind, name and input of a tool item. None if the item is not a tool."""
    match item.type:
        case "commandExecution":
            return "command", "shell", {"command": item.command, "cwd": item.cwd}
        case "fileChange":
            return "patch", "patch", {"changes": item.changes}
        case "mcpToolCall":
            return "mcp", f"{item.server}/{item.tool}", item.arguments
        case "dynamicToolCall":
            return "dynamic", item.tool or "", item.arguments
        case "webSearch":
            return "web", "search", {"query": item.query}
        case "collabAgentToolCall" | "imageGeneration" | "imageView" | "sleep":
            return "other", item.type, item.arguments
        case _:
            return None


def tool_ended(item: wire.Item, kind: ToolKind, name: str, given: Any, *, turn: TurnId, row: Row) -> ToolEnded:
    return ToolEnded(
        turn=turn,
        call=CallId(item.id),
        kind=kind,
        name=name,
        ok=_is_ok(item, kind),
        status=item.status or "completed",
        input=given,
        exit_code=item.exit_code,
        output=_output(item),
        duration_ms=item.duration_ms,
        frame=row.seq,
        at_ms=row.at_ms,
    )


def _is_ok(item: wire.Item, kind: ToolKind) -> bool:
    is_completed = item.status in (None, "", "completed")
    ok = is_completed and item.success is not False and not item.error and item.exit_code in (None, 0)
    return ok and not (kind == "mcp" and is_mcp_error(item.result))


def texts(value: Any) -> list[str]:
    if not isinstance(value, list):
        return []
    return [
        part if isinstance(part, str) else str(part.get("text", "")) for part in value if isinstance(part, str | dict)
    ]


def reasoning(item: wire.Item) -> str:
    return "\n".join(part for part in (*texts(item.summary), *texts(item.content)) if part)


def _output(item: wire.Item) -> str | None:
    if item.aggregated_output is not None:
        return item.aggregated_output
    if (said := _text_only(item.content_items)) is not None:
        return said
    spoken = next((part for part in (item.error, item.result, item.content_items) if part is not None), None)
    return None if spoken is None else msgspec.json.encode(spoken).decode()


def _text_only(content: Any) -> str | None:
    """Return the result of a caller's tool, which is one text. None if it is anything else.

    >>> _text_only([{"type": "inputText", "text": "7"}])
    '7'
    """
    match content:
        case [{"type": "inputText", "text": str(text)}]:
            return text
        case _:
            return None


def kept_items(page: wire.TurnsPage) -> Iterator[HistoryItem]:
    """Yield the items of a page of turns, in order."""
    for turn in page.data:
        for item in turn.items:
            yield _kept(item)


def _kept(item: wire.Item) -> HistoryItem:
    if (tool := tool_of(item)) is not None:
        kind, name, given = tool
        output = _output(item)
        call = HistoryCall(kind=kind, input=given, output=output, ok=_is_ok(item, kind))
        return HistoryItem(kind="tool", id=item.id, text=name, digest=tool_digest(name, given, output), call=call)
    if item.type == "userMessage":
        return HistoryItem(kind="prompt", id=item.id, text="\n".join(texts(item.content)))
    if item.type in MESSAGES:
        return HistoryItem(kind="message", id=item.id, text=item.text or "")
    if item.type == "reasoning":
        return HistoryItem(kind="reasoning", id=item.id, text=reasoning(item))
    return HistoryItem(kind="other", id=item.id, text=item.type)
