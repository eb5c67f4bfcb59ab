"""An item of the history that an agent stores."""

from typing import Literal

import msgspec


class HistoryItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One item of the history that an agent stores, as it was read back."""

    kind: Literal["prompt", "message", "reasoning", "tool", "other"]
    """Kind of item."""

    id: str | None = None
    """The agent's id of the item; None if it has none."""

    text: str | None = None
    """Text of a prompt or message; None if it is not stored."""

    digest: str | None = None
    """`event.history.tool_digest` of a tool call; None if the stored form cannot be compared."""
