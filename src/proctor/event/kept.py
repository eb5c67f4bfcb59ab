"""An item of the history that an agent keeps by itself."""

from typing import Literal

import msgspec


class KeptItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One item of the history that an agent keeps by itself, as it was read back.

    `digest` is `event.history.tool_digest` of a tool call, where the agent keeps that in the words it told it in.
    """

    kind: Literal["prompt", "message", "reasoning", "tool", "other"]
    id: str | None = None
    text: str | None = None
    digest: str | None = None
