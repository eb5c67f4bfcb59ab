"""How much of a tool's input and output an agent is shown: all of it, its shape or nothing. Pure."""

import json
from enum import StrEnum
from typing import Any, Final

import msgspec

from proctor import canonical
from proctor.event.message import CallPart, Message, ResultPart

MOST_SHAPE_LEVELS: Final = 8
"""The deepest level of a value whose shape is shown. Below it, an object is `object` and an array is `array`."""


class Payload(StrEnum):
    """How much of a tool's input and output is shown."""

    ELIDED = "elided"
    """Nothing but the tool's name and whether the call succeeded."""

    SHAPE = "shape"
    """The names and types in the input, and the size of the output. No values."""

    WHOLE = "whole"
    """Everything."""


def json_text(value: Any) -> str:
    """Return canonical JSON, also of texts that are not valid Unicode.

    >>> json_text({"b": 1, "a": "\\ud800"}) == '{"a":"\\ud800","b":1}'
    True
    """
    try:
        return canonical.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def utf8_bytes(text: str) -> int:
    """Return the size of a text in UTF-8, also if it is not valid Unicode.

    >>> utf8_bytes("é"), utf8_bytes("\\ud800")
    (2, 3)
    """
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def shape_of(value: Any) -> Any:
    """Return the names and types in a JSON value. An array has each shape of its elements once, sorted.

    >>> shape_of({"command": ["ls", "-l", 1], "env": {"A": None}, "timeout": 1.5})
    {'command': ['integer', 'string'], 'env': {'A': 'null'}, 'timeout': 'number'}
    """
    return _shape_of(value, levels=MOST_SHAPE_LEVELS)


def _shape_of(value: Any, *, levels: int) -> Any:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case dict():
            if not levels:
                return "object"
            return {key: _shape_of(value[key], levels=levels - 1) for key in sorted(value)}
        case _:
            if not levels:
                return "array"
            shapes = {json_text(shape): shape for shape in (_shape_of(each, levels=levels - 1) for each in value)}
            return [shapes[key] for key in sorted(shapes)]


def reduce_payload(message: Message, payload: Payload) -> Message:
    """Return the message as an agent is given it: the same, or with less of a tool's input or output.

    An output is text, so its shape is its size, which `cut_bytes` has. An unknown input or output stays unknown.
    """
    if payload is Payload.WHOLE:
        return message
    match message.part:
        case CallPart(input=input_) as part if input_ is not None:
            shown = shape_of(input_) if payload is Payload.SHAPE else None
            return msgspec.structs.replace(message, part=msgspec.structs.replace(part, input=shown))
        case ResultPart(output=str(output), cut_bytes=cut_bytes) as part:
            reduced = msgspec.structs.replace(part, output="", cut_bytes=cut_bytes + utf8_bytes(output))
            return msgspec.structs.replace(message, part=reduced)
        case _:
            return message
