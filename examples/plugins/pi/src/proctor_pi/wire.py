"""The part of pi's RPC that the plugin reads. Unknown fields are ignored; unknown types are left to the caller."""

from typing import Any

import msgspec

BROKEN_OFF = ("error", "aborted")
"""The stop reasons of an incomplete reply."""


class Native(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Root of all native structs."""


class Usage(Native, frozen=True, kw_only=True):
    """The usage of one reply. `input` does not include tokens read from or written to a cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0


class Block(Native, frozen=True, kw_only=True):
    """A part of a message: `text`, `thinking`, `toolCall` or an unknown type."""

    type: str
    text: str = ""
    thinking: str = ""


class Message(Native, frozen=True, kw_only=True):
    role: str
    content: tuple[Block, ...] | str = ()
    usage: Usage | None = None
    stop_reason: str | None = None
    error_message: str | None = None

    def blocks(self, type_: str) -> list[tuple[int, Block]]:
        """Return the blocks of a type, each with its index."""
        blocks = self.content if isinstance(self.content, tuple) else ()
        return [(index, block) for index, block in enumerate(blocks) if block.type == type_]


class Piece(Native, frozen=True, kw_only=True):
    """A piece of a streamed reply."""

    type: str
    content_index: int = 0
    delta: str = ""


class Result(Native, frozen=True, kw_only=True):
    """The result of a tool call."""

    content: tuple[Block, ...] = ()

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.content)


class Model(Native, frozen=True, kw_only=True):
    id: str
    provider: str | None = None


class State(Native, frozen=True, kw_only=True):
    """The data of a reply to `get_state`."""

    session_id: str
    session_file: str | None = None
    model: Model | None = None
    message_count: int = 0
    is_streaming: bool = False
    is_compacting: bool = False


class Frame(Native, frozen=True, kw_only=True):
    """Any frame. The type decides which fields are set."""

    type: str
    id: str | None = None
    # response
    command: str | None = None
    success: bool | None = None
    error: str | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    # message_start, message_update, message_end; for extension_ui_request it is a string
    message: Message | str | None = None
    assistant_message_event: Piece | None = None
    # tool_execution_start, tool_execution_update, tool_execution_end
    tool_call_id: str | None = None
    tool_name: str | None = None
    args: dict[str, Any] | None = None
    partial_result: Result | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # compaction_end uses it for something else
    is_error: bool = False
    # auto_retry_start, auto_retry_end, compaction_end
    error_message: str | None = None
    final_error: str | None = None
    will_retry: bool = False
    # extension_ui_request, extension_error
    method: str | None = None
    title: str | None = None


class _Typed(Native, frozen=True, kw_only=True):
    type: str


_DECODER = msgspec.json.Decoder(Frame)
_TYPED = msgspec.json.Decoder(_Typed)
_STATE = msgspec.json.Decoder(State)


def read_frame(line: bytes | msgspec.Raw) -> Frame | None:
    """Decode a line; None if it is not a frame or has an unknown shape."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def name_of(line: bytes | msgspec.Raw) -> str:
    """Return the type of a line that `read_frame` could not decode."""
    try:
        return _TYPED.decode(line).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "not a frame"


def read_state(frame: Frame) -> State | None:
    """Return the state in a reply to `get_state`; None if it cannot be read."""
    try:
        return None if isinstance(frame.data, msgspec.UnsetType) else _STATE.decode(frame.data)
    except (msgspec.DecodeError, RecursionError):
        return None
