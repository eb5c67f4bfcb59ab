"""Parse and compare JSON values. Pure."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NoReturn

from proctor.spec.pointer import ABSENT, at_pointer, parse_step


def parse_json(data: bytes | str, *, is_exact: bool = False) -> Any:
    """Return the value of JSON text in UTF-8. Raises ValueError if it is not valid.

    With `is_exact` numbers are Decimals, which lose nothing. Otherwise they equal those of a spec.

    >>> parse_json(b"[1, 2.0]"), parse_json("0.10", is_exact=True)
    ([1, 2.0], Decimal('0.10'))
    """
    text = data if isinstance(data, str) else data.decode()
    try:
        if is_exact:
            return json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=_refuse)
        return json.loads(text, parse_constant=_refuse)
    except (RecursionError, ArithmeticError) as error:
        raise ValueError("too deep, or a number that is too large") from error


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def is_same_json(one: Any, other: Any, *, ignore: Sequence[str] = ()) -> bool:
    """Return whether two values are equal as JSON, apart from what the pointers `ignore` lead to.

    1 equals 1.0, and true does not equal 1. Works on values of any depth.

    >>> is_same_json({"a": 1, "b": [1]}, {"b": [1.0], "a": 1}), is_same_json([1], [True]), is_same_json(1, "1")
    (True, False, False)
    >>> is_same_json({"id": 7, "n": [1, 5]}, {"n": [1, 6]}, ignore=["/id", "/n/1"])
    True
    """
    for pointer in ignore:
        one, other = leave_out(one, pointer), leave_out(other, pointer)
    waiting = [(one, other)]
    while waiting:
        match waiting.pop():
            case dict() as left, dict() as right:
                if left.keys() != right.keys():
                    return False
                waiting += ((left[key], right[key]) for key in left)
            case list() as left, list() as right:
                if len(left) != len(right):
                    return False
                waiting += zip(left, right, strict=True)
            case (bool(), _) | (_, bool()) as pair:
                if pair[0] is not pair[1]:
                    return False
            case left, right:
                if left != right:
                    return False
    return True


def leave_out(value: Any, pointer: str) -> Any:
    """Return the value without what a pointer leads to: a key is removed, an item of a list becomes null.

    >>> leave_out({"a": {"b/c": [1, 2]}}, "/a/b~1c/0"), leave_out([1], "/5"), leave_out({"a": 1}, "/a")
    ({'a': {'b/c': [None, 2]}}, [1], {})
    """
    if not pointer or at_pointer(value, pointer) is ABSENT:
        return value
    above, _, last = pointer.rpartition("/")
    parent, step = at_pointer(value, above), parse_step(last)
    if isinstance(parent, dict):
        return _replace(value, above, {key: each for key, each in parent.items() if key != step})
    return _replace(value, above, [*parent[: int(step)], None, *parent[int(step) + 1 :]])


def _replace(value: Any, pointer: str, new: Any) -> Any:
    if not pointer:
        return new
    first, slash, rest = pointer[1:].partition("/")
    step, below = parse_step(first), slash + rest
    if isinstance(value, dict):
        return {**value, step: _replace(value[step], below, new)}
    return [_replace(each, below, new) if at == int(step) else each for at, each in enumerate(value)]
