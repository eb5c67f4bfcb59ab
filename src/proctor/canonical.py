"""Canonical JSON: equal values have equal bytes and equal digests."""

import hashlib
from typing import Any

import msgspec

from proctor.ids import Digest

_ENCODER = msgspec.json.Encoder(order="sorted")


def encode(value: Any) -> bytes:
    """Encode a value as UTF-8 JSON with sorted keys and without spaces.

    >>> encode({"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return _ENCODER.encode(value)


def digest_bytes(data: bytes) -> Digest:
    """Return the SHA-256 digest of bytes, as `sha256:` and 64 hex digits.

    >>> digest_bytes(b"")[:15]
    'sha256:e3b0c442'
    """
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def digest(value: Any) -> Digest:
    """Return the digest of a value's canonical JSON.

    >>> digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    True
    """
    return digest_bytes(encode(value))
