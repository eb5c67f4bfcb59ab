"""Parse TOML into a tree of values with line numbers. The line numbers are approximate."""

import re
import tomllib
from typing import Any, Final

from proctor.errors import InputError
from proctor.spec.tree import MAX_DEPTH, Node

Path = tuple[str, ...]

_NAME: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY: Final = rf"(?P<key>{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*)"
_HEADER: Final = re.compile(rf"[ \t]*\[{{1,2}}[ \t]*{_KEY}[ \t]*\]")
_PAIR: Final = re.compile(rf"[ \t]*{_KEY}[ \t]*=")
_AT_LINE: Final = re.compile(r" ?\(at (?:line (?P<line>[0-9]+), column [0-9]+|end of document)\)$")


def read_toml(text: str, *, file: str) -> Node:
    """Parse TOML. Raises InputError with the line if it is invalid."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # In all supported versions of Python only the message contains the line.
        at = _AT_LINE.search(str(error))
        line = int(at["line"]) if at and at["line"] else len(text.splitlines())
        raise InputError("config.syntax", _AT_LINE.sub("", str(error)), file=file, line=line) from error
    except RecursionError:
        raise InputError("config.syntax", "the file is nested too deeply", file=file) from None
    return _node(document, (), 1, _lines(text), file=file)


def _lines(text: str) -> dict[Path, int]:
    """Return the line of each key's first occurrence. TOML inside a multi-line string can make it wrong."""
    lines: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _names(header["key"])
            path = table
        elif pair := _PAIR.match(line):
            path = (*table, *_names(pair["key"]))
        else:
            continue
        for end in range(1, len(path) + 1):
            lines.setdefault(path[:end], number)
    return lines


def _names(key: str) -> Path:
    """Split a dotted key.

    >>> _names('rollout . "a.b"')
    ('rollout', 'a.b')
    """
    names: list[str] = []
    inner: Any = tomllib.loads(f"{key} = 0")
    while isinstance(inner, dict):
        [(name, inner)] = inner.items()
        names.append(name)
    return tuple(names)


def _node(value: Any, path: Path, line: int, lines: dict[Path, int], *, file: str) -> Node:
    line = lines.get(path, line)
    if len(path) > MAX_DEPTH:
        raise InputError("config.syntax", "the file is nested too deeply", file=file, line=line)
    match value:
        case dict():
            return Node(
                line=line,
                value={key: _node(item, (*path, key), line, lines, file=file) for key, item in value.items()},
            )
        case list():
            return Node(line=line, value=[_node(item, (*path, ""), line, lines, file=file) for item in value])
        case str() | bool() | int() | float():
            return Node(line=line, value=value)
        case _:  # a date or a time
            return Node(line=line, value=str(value))
