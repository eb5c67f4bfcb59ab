"""What a command may hand in while it runs, or leave in a file: the messages, their bounds, their one reading."""

from typing import Any, Final, TypeVar

import msgspec

FEEDBACK_VARIABLE: Final = "PROCTOR_FEEDBACK"
"""Names the socket that takes one message a connection and answers each with a Receipt."""
MAX_MESSAGE_BYTES: Final = 64 * 1024
MAX_MESSAGES: Final = 1000
MAX_DEPTH: Final = 32


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """Root of what a command may say."""


class Feedback(Message, tag="feedback", frozen=True, kw_only=True):
    """What it claims of its task."""

    done: bool
    answer: str | None = None
    result: Any = None


class Note(Message, tag="note", frozen=True, kw_only=True):
    """Something it wants on record."""

    text: str


class LeftResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same claim, as a file holds it."""

    done: bool
    answer: str | None = None
    result: Any = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the message is on record; why not where it is not."""

    ok: bool
    what: str | None = None


T = TypeVar("T")
_MESSAGE: Final[msgspec.json.Decoder[Feedback | Note]] = msgspec.json.Decoder(Feedback | Note)
_LEFT: Final = msgspec.json.Decoder(LeftResult)


def read_message(data: bytes) -> Feedback | Note:
    """ValueError, with what is wrong, for anything else.

    >>> read_message(b'{"kind": "note", "text": "half way"}')
    Note(text='half way')
    """
    return _read(_MESSAGE, data)


def read_left(data: bytes) -> LeftResult:
    """ValueError, with what is wrong, for anything else."""
    return _read(_LEFT, data)


def _read(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"over {MAX_MESSAGE_BYTES} bytes")
    try:
        data.decode()
        _refuse_depth(msgspec.json.decode(data))
        return decoder.decode(data)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


def _refuse_depth(value: Any) -> None:
    """What is deeper than this could be taken and not be written down as the value it is."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, (list, dict))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ValueError("nested too deep")
