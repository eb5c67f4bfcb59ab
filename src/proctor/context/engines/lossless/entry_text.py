"""The texts of an entry: what it is found by, one line of it, and texts that are cut to a size. Pure."""

import re
from collections.abc import Iterator
from typing import Any, Final

from proctor.context.payload import json_text
from proctor.event.message import AgentPart, CallPart, Message, ResultPart, SummaryPart, UserPart

CUT: Final = "…"
_CUT_BYTES: Final = len(CUT.encode())
_SPACE: Final = re.compile(r"\s+")
_UNFINISHED_MASK: Final = re.compile(r"\[redacted:[^\]]*\Z")


def whole_text(message: Message) -> str:
    """Return everything that an entry says: its text, its output, or the tool's name and input.

    >>> from proctor.ids import EntryId
    >>> part = CallPart(kind="command", name="shell", input={"command": "ls"})
    >>> whole_text(Message(id=EntryId("r/a#1"), at_ms=0, part=part))
    'shell {"command":"ls"}'
    """
    match message.part:
        case CallPart(name=name, input=input_):
            return name if input_ is None else f"{name} {json_text(input_)}"
        case ResultPart(output=output):
            return output or ""
        case part:
            return part.text


def searched_text(message: Message) -> str:
    """Return the text whose words find an entry. Of a tool's input, the texts without the escapes of JSON."""
    if isinstance(message.part, CallPart):
        return "\n".join((message.part.name, *_texts_in(message.part.input)))
    return whole_text(message)


def _texts_in(value: Any) -> Iterator[str]:
    open_values = [value]
    while open_values:
        match open_values.pop():
            case dict() as each:
                open_values += each.values()
                open_values += reversed(each)
            case list() as each:
                open_values += reversed(each)
            case None | bool():
                pass
            case each:
                yield str(each)


def role_of(message: Message) -> str:
    """Return what an entry is, for a person or an agent.

    >>> from proctor.ids import EntryId
    >>> role_of(Message(id=EntryId("r/a#1"), at_ms=0, part=ResultPart(call=EntryId("r/a#0"), name="shell", ok=False)))
    'failed result of shell'
    """
    match message.part:
        case UserPart():
            return "user"
        case AgentPart():
            return "assistant"
        case CallPart(name=name):
            return f"call of {name}"
        case ResultPart(name=name, ok=ok):
            return f"failed result of {name}" if ok is False else f"result of {name}"
        case SummaryPart():
            return "summary"


def valid_text(text: str) -> str:
    """Return the text with a `?` for each lone surrogate, and without NUL.

    >>> valid_text("a\\ud800\\0b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def one_line(text: str, *, most_bytes: int) -> str:
    """Return the text on one line, cut to a size.

    >>> one_line(" one\\ntwo  three ", most_bytes=12), one_line("short", most_bytes=2)
    ('one two t…', '')
    """
    # Of a long text no more than could fit is looked at.
    head = text[: 4 * most_bytes + 64]
    return cut(_SPACE.sub(" ", valid_text(head)).strip(), most_bytes=most_bytes)


def cut(text: str, *, most_bytes: int) -> str:
    """Return a valid text cut to a size, never inside the placeholder of a secret."""
    data = text.encode()
    if len(data) <= most_bytes:
        return text
    kept = data[: max(0, most_bytes - _CUT_BYTES)].decode(errors="ignore")
    kept = _UNFINISHED_MASK.sub("", kept).rstrip()
    return f"{kept}{CUT}" if kept else ""
