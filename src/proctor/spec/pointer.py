"""JSON pointers (RFC 6901): a place in a value. Pure."""

import re
from typing import Any, Final

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")  # no list is longer, and int() takes no digits without end
_BAD_ESCAPE = re.compile(r"~(?![01])")


class Absent:
    """Nothing is there, which is not the same as null."""


ABSENT: Final = Absent()


def is_pointer(written: str) -> bool:
    """
    >>> is_pointer("/a~1b/0"), is_pointer("a"), is_pointer("/~2")
    (True, False, False)
    """
    return (not written or written.startswith("/")) and not _BAD_ESCAPE.search(written)


def at_pointer(value: Any, pointer: str) -> Any:
    """What is there, or ABSENT.

    >>> at_pointer({"a/b": [10, None]}, "/a~1b/1") is None
    True
    >>> at_pointer({"a": []}, "/a/0") is at_pointer(None, "/a") is ABSENT
    True
    """
    for token in pointer.split("/")[1:]:
        step = token.replace("~1", "/").replace("~0", "~")
        match value:
            case dict() if step in value:
                value = value[step]
            case list() if _INDEX.fullmatch(step) and int(step) < len(value):
                value = value[int(step)]
            case _:
                return ABSENT
    return value
