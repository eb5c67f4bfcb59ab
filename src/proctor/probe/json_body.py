"""Compare JSON values, without those that a spec ignores. Pure."""

import json
from collections.abc import Sequence
from typing import Any

from proctor.spec.pointer import at_pointer


def parse_json(data: bytes) -> Any:
    """Return the value of JSON text in UTF-8. Raises ValueError if it is not valid.

    >>> parse_json(b"[1, 2.0]"), parse_json(b'"\\xc3\\xa9"')
    ([1, 2.0], 'é')
    """
    try:
        return json.loads(data.decode(), parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("too deep") from error


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def is_same_json(one: Any, other: Any, *, ignore: Sequence[str] = ()) -> bool:
    """Return whether two values are equal as JSON, apart from what the pointers `ignore` lead to.

    >>> is_same_json({"a": 1, "b": [1]}, {"b": [1.0], "a": 1}), is_same_json([1], [True]), is_same_json(1, "1")
    (True, False, False)
    >>> is_same_json({"id": 7, "n": [1, 5]}, {"n": [1, 6]}, ignore=["/id", "/n/1"])
    True
    """
    for pointer in ignore:
        one, other = _without(one, pointer), _without(other, pointer)
    return _is_same(one, other)


def _is_same(one: Any, other: Any) -> bool:
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case dict(), dict():
            return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(_is_same, one, other))
        case _:
            return bool(one == other)


def _without(value: Any, pointer: str) -> Any:
    """Return the value without what a pointer leads to: a key is removed, an item of a list becomes null.

    >>> _without({"a": {"b/c": [1, 2]}}, "/a/b~1c/0"), _without([1], "/5"), _without({"a": 1}, "/a")
    ({'a': {'b/c': [None, 2]}}, [1], {})
    """
    above, _, last = pointer.rpartition("/")
    step = last.replace("~1", "/").replace("~0", "~")
    match at_pointer(value, above):
        case dict() as parent if step in parent:
            changed: Any = {key: each for key, each in parent.items() if key != step}
        case list() as parent if step.isdecimal() and step.isascii() and len(step) < 10 and int(step) < len(parent):
            changed = [*parent[: int(step)], None, *parent[int(step) + 1 :]]
        case _:
            return value
    return _replaced(value, above, changed)


def _replaced(value: Any, pointer: str, new: Any) -> Any:
    if not pointer:
        return new
    first, slash, rest = pointer[1:].partition("/")
    step = first.replace("~1", "/").replace("~0", "~")
    below = slash + rest
    if isinstance(value, dict):
        return {**value, step: _replaced(value[step], below, new)}
    return [_replaced(each, below, new) if at == int(step) else each for at, each in enumerate(value)]
