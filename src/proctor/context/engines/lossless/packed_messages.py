"""Messages and ids of entries as the database of the engine stores them: compressed. Pure."""

import json
import zlib
from collections.abc import Sequence

import msgspec

from proctor import decoding
from proctor.event.message import Message
from proctor.ids import EntryId

_encode = msgspec.json.Encoder().encode
_messages = decoding.json_decoder(tuple[Message, ...])
_ids = decoding.json_decoder(tuple[EntryId, ...])


def pack(data: bytes, dictionary: bytes | None) -> bytes:
    """Compress encoded messages, with the dictionary of their database if it has one."""
    packing = zlib.compressobj(zdict=dictionary) if dictionary else zlib.compressobj()
    return packing.compress(data) + packing.flush()


def unpack(packed: bytes, dictionary: bytes | None) -> tuple[Message, ...]:
    """Return the messages. Raises zlib.error or msgspec.DecodeError if they are damaged."""
    unpacking = zlib.decompressobj(zdict=dictionary) if dictionary else zlib.decompressobj()
    text = unpacking.decompress(packed) + unpacking.flush()
    if not unpacking.eof:
        raise zlib.error("the entries are cut off")
    try:
        return _messages(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Lone surrogates, which msgspec does not read.
        messages: tuple[Message, ...] = decoding.convert(json.loads(text), tuple[Message, ...])
        return messages


def encode_messages(messages: Sequence[Message]) -> bytes:
    """Return the messages as JSON, also with lone surrogates, which msgspec does not write."""
    try:
        return _encode(messages)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(messages)).encode()


def pack_ids(ids: Sequence[EntryId]) -> bytes:
    """Compress ids of entries."""
    return zlib.compress(_encode(ids))


def unpack_ids(packed: bytes) -> tuple[EntryId, ...]:
    """Return the ids. Raises zlib.error or msgspec.DecodeError if they are damaged."""
    return _ids(zlib.decompress(packed))
