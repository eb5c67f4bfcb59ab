"""Parse YAML into a tree of values with line numbers. Depth and size are bounded against hostile files."""

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn, TypeAlias

import yaml

from proctor.errors import InputError

MAX_DEPTH: Final = 64
MAX_KEY_CHARS: Final = 200
MAX_NODES: Final = 200_000  # counted with aliases expanded, against the "billion laughs" attack

# libyaml if it is available; both produce the same events and marks.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SMUGGLED = re.compile("[\0\ud800-\udfff]")  # an escape in double quotes can produce these
_INTEGER = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MAX_DIGITS: Final = 300
# `yes`, `no`, `on` and `off` stay strings.
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_SIMPLE_KEY = re.compile(r"[A-Za-z0-9_-]+")

Leaf: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value, and the line of its key or list item. `size` and `depth` include its children."""

    line: int
    value: "Leaf | list[Node] | dict[str, Node]"
    size: int = 1
    depth: int = 1


def child_path(path: str, key: str | int) -> str:
    """Return the path of a child in messages.

    >>> child_path(child_path("missions", 0), "id"), child_path("env", "a.b")
    ('missions[0].id', 'env["a.b"]')
    """
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _SIMPLE_KEY.fullmatch(key):
        quoted = key.replace("\\", "\\\\").replace('"', '\\"')
        return f'{path}["{quoted}"]'
    return f"{path}.{key}" if path else key


def read_tree(text: str, *, file: str) -> tuple[Node | None, list[InputError]]:
    """Parse YAML. Returns the document, or None if it cannot be parsed, and all syntax errors."""
    composer = _Composer(file)
    if bad := UNPRINTABLE.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        composer.report("spec.syntax", f"YAML does not allow the character U+{ord(bad[0]):04X}", line=line)
        return None, composer.errors
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            composer.feed(event)
    except yaml.MarkedYAMLError as error:
        began = f" {error.context}" if error.context else ""
        if error.context_mark is not None:
            began += f" that began on line {error.context_mark.line + 1}"
        # The parser reports a missing end on the line after the last.
        last = len(text.splitlines())
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        composer.report("spec.syntax", f"{error.problem}{began}", line=min(line, last))
        return None, composer.errors
    except _StopParsingError:
        return None, composer.errors
    return composer.root, composer.errors


class _StopParsingError(Exception):
    """The rest of the file cannot be parsed; the reason is in `errors`."""


@dataclass(slots=True, kw_only=True)
class _Open:
    """A list or mapping that is still being read."""

    path: str
    line: int
    anchor: str | None
    children: list[Node] | dict[str, Node]
    size: int = 1
    depth: int = 1
    key: str | None = None
    key_line: int = 0


class _Composer:
    """Build a tree from parser events, without recursion."""

    def __init__(self, file: str) -> None:
        self.root = Node(line=1, value=None)
        self.errors: list[InputError] = []
        self._file = file
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._documents = 0

    def report(self, code: str, what: str, *, line: int, key: str | None = None, suggestion: str | None = None) -> None:
        self.errors.append(InputError(code, what, file=self._file, line=line, key=key or None, suggestion=suggestion))

    def feed(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._stop("the file contains a second YAML document; only one is allowed", line=line)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    self._stop(f"the alias *{event.anchor} has no anchor before it", line=line)
                self._add(replace(self._anchors[event.anchor], line=line))
            case yaml.ScalarEvent():
                self._refuse_tag(event, line=line)
                self._scalar(event, line=line)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._refuse_tag(event, line=line)
                self._open(event, line=line)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                done = self._stack.pop()
                node = Node(line=done.line, value=done.children, size=done.size, depth=done.depth)
                self._add(node, anchor=done.anchor)

    def _stop(self, what: str, *, line: int, suggestion: str | None = None) -> NoReturn:
        self.report("spec.syntax", what, line=line, key=self._path(), suggestion=suggestion)
        raise _StopParsingError

    def _path(self) -> str:
        """Return the path of the next value."""
        if not self._stack:
            return ""
        top = self._stack[-1]
        if isinstance(top.children, list):
            return child_path(top.path, len(top.children))
        return top.path if top.key is None else child_path(top.path, top.key)

    def _refuse_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, *, line: int) -> None:
        if event.tag is not None:
            self._stop(
                f"the YAML tag `{event.tag}` is not supported", line=line, suggestion="Write the value without the tag."
            )

    def _is_key_next(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].children, dict) and self._stack[-1].key is None

    def _open(self, event: yaml.CollectionStartEvent, *, line: int) -> None:
        if self._is_key_next():
            self._stop("a key must be a string, not a list or a mapping", line=line)
        if len(self._stack) >= MAX_DEPTH:
            self._stop(f"the file is nested more than {MAX_DEPTH} levels deep", line=line)
        children: list[Node] | dict[str, Node] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self._stack.append(_Open(path=self._path(), line=line, anchor=event.anchor, children=children))

    def _scalar(self, event: yaml.ScalarEvent, *, line: int) -> None:
        if bad := _SMUGGLED.search(event.value):
            self._stop(f"a text must not contain the character U+{ord(bad[0]):04X}", line=line)
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.children, dict) and top.key is None:
            if event.value == "<<":
                self._stop("the merge key `<<` is not supported", line=line, suggestion="Write the merged keys.")
            if len(event.value) > MAX_KEY_CHARS:
                self._stop(f"the key has more than {MAX_KEY_CHARS} characters", line=line)
            top.key, top.key_line = event.value, line
            if event.anchor is not None:
                self._anchors[event.anchor] = Node(line=line, value=event.value)
            return
        # implicit[0] is true for a plain scalar. Quoted text is always a string.
        value = self._resolve(event.value, line=line) if event.implicit[0] else event.value
        self._add(Node(line=line, value=value), anchor=event.anchor)

    def _resolve(self, text: str, *, line: int) -> Leaf:
        """Resolve a plain scalar by the core schema of YAML 1.2, without infinity and not-a-number."""
        if text in _WORDS:
            return _WORDS[text]
        value: int | float
        if _INTEGER.fullmatch(text):
            value = int(text, 0 if text[:2] in ("0x", "0o") else 10) if len(text) <= _MAX_DIGITS else math.inf
            is_in_range = -(2**63) <= value < 2**63
        elif _FLOAT.fullmatch(text):
            value = float(text)
            is_in_range = math.isfinite(value)
        else:
            return text
        if not is_in_range:
            self.report("spec.type", f"the number {text[:30]} is too large", line=line, key=self._path())
            return 0
        return value

    def _add(self, node: Node, *, anchor: str | None = None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._stack:
            self.root = replace(node, line=1)
            return
        top = self._stack[-1]
        top.size += node.size
        top.depth = max(top.depth, node.depth + 1)
        if top.size > MAX_NODES:
            self._stop(f"the file has more than {MAX_NODES} values, with aliases expanded", line=node.line)
        if len(self._stack) + node.depth > MAX_DEPTH + 1:
            self._stop(f"the file is nested more than {MAX_DEPTH} levels deep, with aliases expanded", line=node.line)
        if isinstance(top.children, list):
            top.children.append(node)
            return
        if top.key is None:  # only an alias can be a key here: scalars and collections are handled before
            self._stop("a key must be a string, not an alias", line=node.line)
        if (first := top.children.get(top.key)) is not None:
            what = f"the key `{top.key}` is already on line {first.line}"
            self.report("spec.duplicate-key", what, line=top.key_line, key=self._path())
        else:
            top.children[top.key] = replace(node, line=top.key_line)
        top.key = None
