"""An item of the history that an agent stores."""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

ToolKind = Literal["command", "patch", "mcp", "web", "dynamic", "other"]


class HistoryCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A tool call in the history that an agent stores. Its name is the text of the item."""

    kind: ToolKind
    """Kind of tool."""

    input: Any = None
    """The tool's input, any JSON value; null if it is unknown."""

    output: str | None = None
    """The output; null if the agent stores none."""

    ok: bool | None = None
    """Whether the call succeeded; null if unknown."""


class HistoryItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One item of the history that an agent stores, as it was read back."""

    kind: Literal["prompt", "message", "reasoning", "tool", "other"]
    """Kind of item."""

    id: str | None = None
    """The agent's id of the item; None if it has none."""

    text: str | None = None
    """Text of a prompt or message, or name of a tool; None if it is not stored."""

    digest: str | None = None
    """`event.history.tool_digest` of a tool call; None if the stored form cannot be compared."""

    call: HistoryCall | None = None
    """The tool call, if the history was read to import it; None otherwise."""


def without_calls(items: Iterable[HistoryItem]) -> tuple[HistoryItem, ...]:
    """Return the items without what their tools were given and returned."""
    return tuple(item if item.call is None else replace(item, call=None) for item in items)
