"""A channel that leaves out of pi's frames what they repeat: each piece of a reply comes with all that was before it.

Kept, a reply of n pieces would cost n² bytes. And the repeated text ends anywhere, half-way through a secret too, where
no redaction can tell; pieces of a text are redacted as one stream. What is left out is the sum of the pieces, and comes
again whole when the message or the tool call ends.
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
    """Lines in, lines out, one for one. A line that is not as expected stays as it is."""

    def __init__(self) -> None:
        self.left_out_bytes = 0
        self._outputs: dict[str, str] = {}
        self._ways: dict[str, Callable[[_Fields], None]] = {
            "message_start": _empty_reply,
            "message_update": _keep_piece,
            "tool_execution_update": self._keep_growth,
            "tool_execution_end": self._forget,
        }

    def line(self, line: bytes) -> bytes:
        try:
            way = self._ways.get(name_of(line))
            if way is None:
                return line
            fields = _read_fields(line)
            way(fields)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
            return line
        leaner = _encode(fields)
        self.left_out_bytes += len(line) - len(leaner)
        return leaner

    def fact(self) -> Fact:
        """That what is on record as pi's frames is not all that it said, and what is missing."""
        return Fact(
            value={"leftOut": LEFT_OUT, "bytes": self.left_out_bytes},
            authority=Authority.OBSERVED,
            source="the frames of pi, before they were recorded",
        )

    def _keep_growth(self, fields: _Fields) -> None:
        """A tool's output so far becomes what it grew by, and stays whole where its beginning was dropped meanwhile."""
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
    """By the time it is announced a reply may have begun to grow."""
    message = _read_fields(fields["message"])
    if msgspec.json.decode(message["role"]) == "assistant":
        message["content"] = _EMPTY
        fields["message"] = msgspec.Raw(_encode(message))


class LeanChannel:
    """Between pi, or what stands in for it, and us."""

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
