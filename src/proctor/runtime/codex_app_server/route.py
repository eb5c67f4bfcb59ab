"""Determine which session a frame belongs to. Only this much of a frame is interpreted before it is recorded."""

from typing import Any

import msgspec

from proctor import decoding
from proctor.evidence.redact import TextStream
from proctor.protocol.jsonrpc import Failure, RequestId, decode
from proctor.runtime.codex_app_server import wire


class _Named(wire.Native, frozen=True):
    id: str | None = None
    type: str | None = None
    parent_thread_id: str | None = None


class _Params(wire.Native, frozen=True):
    thread_id: str | None = None
    conversation_id: str | None = None  # the name in the oldest requests
    turn_id: str | None = None
    item_id: str | None = None
    thread: _Named | None = None
    turn: _Named | None = None
    item: _Named | None = None


class Envelope(wire.Native, frozen=True, kw_only=True):
    """The parts of a message that routing and control need."""

    id: RequestId | None = None
    method: str | None = None
    params: _Params | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: Failure | None = None

    @property
    def thread(self) -> str | None:
        if self.params is None:
            return None
        named = self.params.thread_id or self.params.conversation_id
        return named or (self.params.thread.id if self.params.thread else None)

    @property
    def parent_thread(self) -> str | None:
        return self.params.thread.parent_thread_id if self.params and self.params.thread else None

    @property
    def turn(self) -> str | None:
        if self.params is None:
            return None
        return self.params.turn_id or (self.params.turn.id if self.params.turn else None)

    @property
    def item(self) -> str | None:
        if self.params is None:
            return None
        return self.params.item_id or (self.params.item.id if self.params.item else None)

    @property
    def item_type(self) -> str | None:
        return self.params.item.type if self.params and self.params.item else None

    @property
    def text_stream(self) -> TextStream | None:
        """The streamed text of which this frame carries a piece."""
        if self.method not in wire.DELTAS:
            return None
        return TextStream(key=f"{self.thread}|{self.item}|{self.method}", path=("params", "delta"))

    @property
    def ended_streams(self) -> str | None:
        """The key prefix of the text streams that end with this frame."""
        if self.method == "item/completed":
            return f"{self.thread}|{self.item}|"
        return f"{self.thread}|" if self.method == "turn/completed" else None


NOT_A_MESSAGE = Envelope()
_decode = decoding.json_decoder(Envelope)


def open_envelope(line: bytes) -> Envelope:
    """Return the envelope of a line. Empty if the line is not a message of this protocol."""
    try:
        if not line.isascii():
            line.decode()
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = decode(line)
    if message is None:
        return NOT_A_MESSAGE
    params = None if isinstance(message.params, msgspec.UnsetType) else _readable(message.params)
    return Envelope(id=message.id, method=message.method, params=params, result=message.result, error=message.error)


def _readable(raw: msgspec.Raw) -> _Params | None:
    """Decode the fields one by one, so that a malformed field does not hide the owner of the frame."""
    try:
        value = decoding.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    parts = value.items() if isinstance(value, dict) else ()
    return decoding.convert({name: part for name, part in parts if _is_readable(name, part)}, _Params)


def _is_readable(name: str, part: Any) -> bool:
    try:
        decoding.convert({name: part}, _Params)
    except msgspec.ValidationError:
        return False
    return True
