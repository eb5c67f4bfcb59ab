"""Decode the envelope of a line once, for its route before it is recorded and for control afterwards."""

from typing import Final

import msgspec

from proctor import decoding
from proctor.evidence.redact import TextStream
from proctor.runtime.claude_code import wire
from proctor.runtime.line_process import PLAIN, LineRoute

NOT_A_FRAME: Final = wire.Envelope()
_decode: Final = decoding.json_decoder(wire.Envelope)


def open_envelope(line: bytes) -> wire.Envelope:
    """Return the envelope of a line; an empty one if the line is not a frame or has an unknown shape."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NOT_A_FRAME


def route_of(envelope: wire.Envelope) -> LineRoute:
    """Return which streamed text a frame carries a piece of, and which streamed texts end with it."""
    event = envelope.event
    if envelope.type != "stream_event" or event is None:
        return LineRoute(ended="") if envelope.type == "result" else PLAIN
    message = envelope.api_message_id or ""
    match event.type:
        case "content_block_delta" if event.delta is not None and (field := wire.STREAMED.get(event.delta.type)):
            key = stream_key(message, event.index, field)
            return LineRoute(stream=TextStream(key=key, path=("event", "delta", field)))
        case "content_block_stop":
            return LineRoute(ended=f"{message}|{event.index}|")
        case "message_stop":
            return LineRoute(ended=f"{message}|")
        case _:
            return PLAIN


def stream_key(message: str, index: int, field: str) -> str:
    return f"{message}|{index}|{field}"
