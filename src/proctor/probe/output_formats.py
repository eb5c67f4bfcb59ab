"""Read files that a hostile program may have written, and compare them in their format. Pure."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from proctor.spec.command_probes import OutputFile, OutputFormat
from proctor.spec.json_value import leave_out, parse_json


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


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableOutput("is not UTF-8") from error


def _read_json(text: str, ignore: Sequence[str]) -> Any:
    try:
        value = parse_json(text, is_exact=True)
    except ValueError as error:
        raise UnreadableOutput("is not JSON") from error
    for pointer in ignore:
        value = leave_out(value, pointer)
    return value


def _read_csv(text: str, ignore: Sequence[str]) -> list[list[str]]:
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise UnreadableOutput("is not CSV") from error
    header = rows[0] if rows else []
    left_out = {at for at, name in enumerate(header) if name in ignore}
    return [[field for at, field in enumerate(row) if at not in left_out] for row in rows]
