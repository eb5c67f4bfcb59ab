"""Encode and decode JSON-RPC messages, one per line."""

from typing import Any

import msgspec

from proctor import decoding

RequestId = int | str


class Failure(msgspec.Struct, frozen=True, gc=False):
    """The error of an error reply."""

    message: str = ""
    code: int | None = None


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """A received message: a reply (without method), a notification (without id) or a request (with both)."""

    id: RequestId | None = None
    method: str | None = None
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: Failure | None = None

    @property
    def is_reply(self) -> bool:
        return self.method is None and self.id is not None

    @property
    def is_request(self) -> bool:
        return self.method is not None and self.id is not None


_decode = decoding.json_decoder(Incoming)
_ENCODER = msgspec.json.Encoder()


def decode(line: bytes) -> Incoming | None:
    """Decode a line. Returns None if it is not a message.

    >>> decode(b'{"id":1,"result":{}}').is_reply
    True
    >>> decode(b"not json") is None
    True
    """
    try:
        if not line.isascii():
            # The decoder does not check raw parts, and a line that is not UTF-8 must be recorded as text.
            line.decode()
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def request(id_: RequestId, method: str, params: Any) -> bytes:
    """Encode a request.

    >>> request(1, "initialize", {})
    b'{"id":1,"method":"initialize","params":{}}'
    """
    return _ENCODER.encode({"id": id_, "method": method, "params": params})


def notification(method: str, params: Any = None) -> bytes:
    """Encode a notification."""
    return _ENCODER.encode({"method": method} if params is None else {"method": method, "params": params})


def reply(id_: RequestId, result: Any) -> bytes:
    """Encode a reply."""
    return _ENCODER.encode({"id": id_, "result": result})


def error_reply(id_: RequestId, code: int, message: str) -> bytes:
    """Encode an error reply.

    >>> error_reply(3, -32601, "unknown")
    b'{"id":3,"error":{"code":-32601,"message":"unknown"}}'
    """
    return _ENCODER.encode({"id": id_, "error": {"code": code, "message": message}})
