"""Resolve JSON pointers (RFC 6901). Pure."""

import re
from typing import Any, Final

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")  # bounded, because int() refuses very long numbers
_BAD_ESCAPE = re.compile(r"~(?![01])")


class Absent:
    """The type of ABSENT: there is no value at the pointer, which differs from null."""


ABSENT: Final = Absent()


def is_pointer(text: str) -> bool:
    """Return whether a text is a JSON pointer.

    >>> is_pointer("/a~1b/0"), is_pointer("a"), is_pointer("/~2")
    (True, False, False)
    """
    return (not text or text.startswith("/")) and not _BAD_ESCAPE.search(text)


def parse_step(token: str) -> str:
    """Return the key, or the position in a list, that a step of a pointer names.

    >>> parse_step("a~1b"), parse_step("~01")
    ('a/b', '~1')
    """
    return token.replace("~1", "/").replace("~0", "~")


def at_pointer(value: Any, pointer: str) -> Any:
    """Return the value at a pointer, or ABSENT.

    >>> at_pointer({"a/b": [10, None]}, "/a~1b/1") is None
    True
    >>> at_pointer({"a": []}, "/a/0") is at_pointer(None, "/a") is ABSENT
    True
    """
    for token in pointer.split("/")[1:]:
        step = parse_step(token)
        match value:
            case dict() if step in value:
                value = value[step]
            case list() if _INDEX.fullmatch(step) and int(step) < len(value):
                value = value[int(step)]
            case _:
                return ABSENT
    return value
