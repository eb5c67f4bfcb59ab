"""Messages that a command sends to Proctor while it runs, or writes to its result file, and their limits."""

from typing import Any, Final

import msgspec

from proctor import decoding

FEEDBACK_VARIABLE: Final = "PROCTOR_FEEDBACK"
"""The variable with the path of the socket, which takes one message per connection and replies with a Receipt."""

MAX_MESSAGE_BYTES: Final = 64 * 1024
MAX_MESSAGES: Final = 1000
MAX_DEPTH: Final = 32


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """Base class of the messages."""


class Feedback(Message, tag="feedback", frozen=True, kw_only=True):
    """The agent's claim about its task, from `proctor feedback`."""

    done: bool
    """Whether the agent says that the task is done."""

    answer: str | None = None
    """The agent's short answer; None if it has none."""

    result: Any = None
    """A structured result, any JSON value."""


class Note(Message, tag="note", frozen=True, kw_only=True):
    """A note for the record, from `proctor note`."""

    text: str
    """Text of the note."""


class FileResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent's claim about its task, from a result file."""

    done: bool
    """Whether the agent says that the task is done."""

    answer: str | None = None
    """The agent's short answer; None if it has none."""

    result: Any = None
    """A structured result, any JSON value."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a message."""

    ok: bool
    """Whether the message was recorded."""

    what: str | None = None
    """Why it was not recorded; None if it was."""


def read_message(data: bytes) -> Feedback | Note:
    """Decode a message. Raises ValueError, with the reason, if it is invalid.

    >>> read_message(b'{"kind": "note", "text": "half way"}')
    Note(text='half way')
    """
    message: Feedback | Note = _read(data, Feedback | Note)
    return message


def read_file_result(data: bytes) -> FileResult:
    """Decode the content of a result file. Raises ValueError, with the reason, if it is invalid."""
    result: FileResult = _read(data, FileResult)
    return result


def _read(data: bytes, type_: Any) -> Any:
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"over {MAX_MESSAGE_BYTES} bytes")
    try:
        data.decode()
        _refuse_depth(decoding.decode(data))
        return decoding.decode(data, type_)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


def _refuse_depth(value: Any) -> None:
    """Raise ValueError for a value nested deeper than MAX_DEPTH, which could not be recorded unchanged."""
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
