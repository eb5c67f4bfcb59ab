"""Typed structs for the lines of `codex exec --json` that Proctor reads. Other fields are ignored."""

from typing import Annotated, Any, Final

import msgspec

# Numbers that every JSON reader and every database can represent.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Number = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]

ENDS: Final = frozenset({"turn.completed", "turn.failed"})
"""The lines that end a turn. An `error` does not: the turn may still succeed."""


class Native(msgspec.Struct, frozen=True, gc=False):
    """Root of native structs: unknown fields are ignored."""


class Envelope(Native, frozen=True):
    """The type of a line, which is all that the session uses."""

    type: str


class ThreadStarted(Native, frozen=True):
    thread_id: str


class Item(Native, frozen=True):
    """Any item, flattened: each kind fills its own fields."""

    id: str
    type: str
    text: str | None = None
    message: str | None = None
    command: str | None = None
    aggregated_output: str | None = None
    exit_code: Number | None = None
    status: str | None = None
    changes: Any = None
    server: str | None = None
    tool: str | None = None
    arguments: Any = None
    result: Any = None
    error: Any = None
    query: str | None = None
    prompt: str | None = None


class ItemLine(Native, frozen=True):
    item: Item


class Usage(Native, frozen=True):
    """Token usage of the whole thread so far, not of the turn."""

    input_tokens: Count
    output_tokens: Count
    cached_input_tokens: Count | None = None
    cache_write_input_tokens: Count | None = None
    reasoning_output_tokens: Count | None = None


class TurnCompleted(Native, frozen=True):
    usage: Usage


class Failed(Native, frozen=True):
    message: str


class TurnFailed(Native, frozen=True):
    error: Failed


class ErrorLine(Native, frozen=True):
    message: str
