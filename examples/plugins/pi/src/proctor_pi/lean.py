"""A channel that removes the repeated text from pi's frames: pi sends each piece of a reply with all text before it.

Recorded as it is, a reply of n pieces would take O(n²) bytes. The repeated text may also end in the middle of a secret,
which redaction could not detect, whereas the pieces of a text are redacted as one stream. Nothing is lost: the removed
text is the sum of the pieces, and pi sends it in full when the message or the tool call ends.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from proctor.fact import Authority, Fact
from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter
from proctor.transport.channel import Channel
from proctor.transport.tree import ExitStatus
from proctor_pi.wire import Result, name_of

_Fields = dict[str, msgspec.Raw]
_encode = msgspec.json.encode
_EMPTY = msgspec.Raw(b"[]")

LEFT_OUT: Final = [
    "message_start: message.content of a reply",
    "message_update: message, assistantMessageEvent.partial",
    "tool_execution_update: what partialResult repeats, and its details",
]

_read_fields = msgspec.json.Decoder(_Fields).decode


class Lean:
    """Shortens lines, one for one. A line of unexpected shape is not changed."""

    def __init__(self) -> None:
        self.left_out_bytes = 0
        self._outputs: dict[str, str] = {}
        self._shorteners: dict[str, Callable[[_Fields], None]] = {
            "message_start": _empty_reply,
            "message_update": _keep_piece,
            "tool_execution_update": self._keep_growth,
            "tool_execution_end": self._forget,
        }

    def line(self, line: bytes) -> bytes:
        try:
            shorten = self._shorteners.get(name_of(line))
            if shorten is None:
                return line
            fields = _read_fields(line)
            shorten(fields)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
            return line
        shorter = _encode(fields)
        self.left_out_bytes += len(line) - len(shorter)
        return shorter

    def fact(self) -> Fact:
        """Return the fact that pi's frames are not recorded in full, and which parts are left out."""
        return Fact(
            value={"leftOut": LEFT_OUT, "bytes": self.left_out_bytes},
            authority=Authority.OBSERVED,
            source="the frames of pi, before they were recorded",
        )

    def _keep_growth(self, fields: _Fields) -> None:
        """Reduce a tool's output so far to what is new. It stays whole if pi has dropped its beginning."""
        call = msgspec.json.decode(fields["toolCallId"], type=str)
        text = msgspec.json.decode(fields["partialResult"], type=Result).text
        before, self._outputs[call] = self._outputs.get(call, ""), text
        if not text.startswith(before):
            return
        growth = text.removeprefix(before)
        fields["partialResult"] = msgspec.Raw(_encode({"content": [{"type": "text", "text": growth}]}))

    def _forget(self, fields: _Fields) -> None:
        self._outputs.pop(msgspec.json.decode(fields["toolCallId"], type=str), None)


def _keep_piece(fields: _Fields) -> None:
    piece = _read_fields(fields["assistantMessageEvent"])
    piece.pop("partial", None)
    fields.pop("message", None)
    fields["assistantMessageEvent"] = msgspec.Raw(_encode(piece))


def _empty_reply(fields: _Fields) -> None:
    """Empty a reply at its announcement, because its text may have begun to grow."""
    message = _read_fields(fields["message"])
    if msgspec.json.decode(message["role"]) == "assistant":
        message["content"] = _EMPTY
        fields["message"] = msgspec.Raw(_encode(message))


class LeanChannel:
    """A channel to pi, or to a channel that wraps pi, that shortens each line."""

    def __init__(self, channel: Channel, lean: Lean) -> None:
        self._channel = channel
        self._lean = lean
        self._splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES)

    async def receive(self) -> bytes:
        while chunk := await self._channel.receive():
            if lines := self._splitter.feed(chunk):
                return b"".join(self._lean.line(line) + b"\n" for line in lines)
        return self._splitter.rest()

    async def receive_err(self) -> bytes:
        return await self._channel.receive_err()

    async def send(self, data: bytes) -> None:
        await self._channel.send(data)

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        return await self._channel.wait(deadline_s=deadline_s)
