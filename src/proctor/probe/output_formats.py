"""Read files that a hostile program may have written, and compare them in their format. Pure."""

import csv
import io
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NoReturn

from proctor.spec.command_probes import OutputFile, OutputFormat
from proctor.spec.pointer import ABSENT, at_pointer


class UnreadableOutput(Exception):  # noqa: N818
    """A file that does not have its format; the text says which."""


def read_output(data: bytes, output: OutputFile) -> Any:
    """Return what counts in a file. Raises UnreadableOutput if it does not have its format.

    >>> rows = OutputFile(path="a", golden="b", format=OutputFormat.CSV, ignore=["at"])
    >>> read_output(b'at,sum\\n12:30,"3"\\n', rows)
    [['sum'], ['3']]
    """
    match output.format:
        case OutputFormat.BYTES:
            return data
        case OutputFormat.TEXT:
            return _decode(data).replace("\r\n", "\n").replace("\r", "\n")
        case OutputFormat.JSON:
            return _read_json(_decode(data), output.ignore)
        case OutputFormat.JSONL:
            lines = [line for line in _decode(data).split("\n") if line.strip()]
            return [_read_json(line, output.ignore) for line in lines]
        case OutputFormat.CSV:
            return _read_csv(_decode(data), output.ignore)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON, where `true` is not 1. Works on values of any depth.

    >>> is_same({"a": [Decimal(1), None]}, {"a": [Decimal("1.0"), None]}), is_same(True, Decimal(1))
    (True, False)
    """
    waiting = [(one, other)]
    while waiting:
        left, right = waiting.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, dict):
            if left.keys() != right.keys():
                return False
            waiting += ((left[key], right[key]) for key in left)
        elif isinstance(left, list):
            if len(left) != len(right):
                return False
            waiting += zip(left, right, strict=True)
        elif left != right:
            return False
    return True


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableOutput("is not UTF-8") from error


def _read_json(text: str, ignore: Sequence[str]) -> Any:
    try:
        # Decimal is exact, and has no limit on the number of digits.
        value = json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise UnreadableOutput("is not JSON") from error
    for pointer in ignore:
        _leave_out(value, pointer)
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _leave_out(value: Any, pointer: str) -> None:
    """Remove a key, or empty an element of a list, so that the others keep their places."""
    parent, _, token = pointer.rpartition("/")
    if at_pointer(value, pointer) is ABSENT or not pointer:
        return
    holder, name = at_pointer(value, parent), token.replace("~1", "/").replace("~0", "~")
    if isinstance(holder, dict):
        del holder[name]
    else:
        holder[int(name)] = None


def _read_csv(text: str, ignore: Sequence[str]) -> list[list[str]]:
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise UnreadableOutput("is not CSV") from error
    header = rows[0] if rows else []
    left_out = {at for at, name in enumerate(header) if name in ignore}
    return [[field for at, field in enumerate(row) if at not in left_out] for row in rows]
