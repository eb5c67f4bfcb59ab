"""Files decoded into structs that remember their lines; every fault of a file is told at once, with its place."""

import re
import stat
import types
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from proctor.errors import InputError
from proctor.spec.collected import MAX_PROBLEMS, raise_collected
from proctor.spec.literal import INSTEAD, WRITTEN_OUT, looks_secret
from proctor.spec.near import MAX_WORD, nearest, suggest
from proctor.spec.tree import Node, child_path, read_tree

MAX_FILE_BYTES: Final = 4 * 1024 * 1024

T = TypeVar("T")

_STEP = re.compile(r'\[(?P<index>[0-9]+)\]|\["(?P<quoted>(?:[^"\\]|\\.)*)"\]|\.?(?P<plain>[^.\[]+)', re.DOTALL)
_PLAIN_NAMES: Final[dict[Any, str]] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    None: "nothing",
    type(None): "nothing",
    list: "a list",
    tuple: "a list",
    dict: "a mapping",
    date: "a date, as in 2026-11-01",
    Any: "any value",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked(Generic[T]):
    """A decoded value, its file, and the lines it was written on."""

    value: T
    file: str
    root: Node

    def line_of(self, key_path: str) -> int:
        """The line of `missions[0].probes[1].command`; where that is absent, of the nearest that holds it."""
        node = self.root
        for step in _STEP.finditer(key_path):
            found: Node | None = None
            if step["index"] is not None:
                index = int(step["index"])
                if isinstance(node.value, list) and index < len(node.value):
                    found = node.value[index]
            elif isinstance(node.value, dict):
                quoted = step["quoted"]
                key = step["plain"] if quoted is None else re.sub(r"(?s)\\(.)", r"\1", quoted)
                found = node.value.get(key)
            if found is None:
                break
            node = found
        return node.line

    def problem(self, code: str, what: str, *, key: str, suggestion: str | None = None) -> InputError:
        """A fault of this file at `key`, with its line."""
        return InputError(code, what, file=self.file, line=self.line_of(key), key=key or None, suggestion=suggestion)


def decode_file(path: Path, type_: type[T]) -> Marked[T]:
    """Reads and decodes a file, or says all that is wrong with it."""
    return decode_bytes(read_source(path), type_, file=str(path))


def read_source(path: Path) -> bytes:
    """The bytes of a file of bearable size. Devices and pipes are refused before a read could hang."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "a folder, not a file" if stat.S_ISDIR(mode) else "not a regular file"
            raise InputError("spec.unreadable", what, file=str(path))
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        what, close = error.strerror or str(error), _beside(path) if isinstance(error, FileNotFoundError) else None
        suggestion = None if close is None else f"Did you mean `{path.with_name(close)}`?"
        raise InputError("spec.unreadable", what, file=str(path), suggestion=suggestion) from error
    except ValueError as error:  # a NUL in the path
        raise InputError("spec.unreadable", str(error), file=str(path)) from error
    if len(data) > MAX_FILE_BYTES:
        raise InputError("spec.unreadable", f"larger than {MAX_FILE_BYTES // 1024**2} MiB", file=str(path))
    return data


def _beside(path: Path) -> str | None:
    """The file beside it that may have been meant."""
    try:
        return nearest(path.name, (each.name for each in path.parent.iterdir()))
    except OSError:
        return None


def decode_bytes(data: bytes, type_: type[T], *, file: str) -> Marked[T]:
    """Decodes what is already read; `file` is what problems call it."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("spec.syntax", f"not UTF-8: {error.reason}", file=file, line=line) from error
    root, problems = read_tree(text, file=file)
    if root is None:
        raise_collected(problems)
    return decode_tree(root, type_, file=file, problems=problems)


def decode_tree(root: Node, type_: type[T], *, file: str, problems: Iterable[InputError] = ()) -> Marked[T]:
    """Decodes a tree, whatever it was written in; `problems` are those found when it was read."""
    found = list(problems)
    value = _Walk(file, found).decode(root, type_, path="")
    if found:
        raise_collected(found)
    return Marked(value=value, file=file, root=root)


def _bare(type_: Any) -> Any:
    """The type under NewType and Annotated."""
    while True:
        if get_origin(type_) is Annotated:
            type_ = get_args(type_)[0]
        elif hasattr(type_, "__supertype__"):
            type_ = type_.__supertype__
        else:
            return type_


def _alternatives(type_: Any) -> tuple[Any, ...]:
    bare = _bare(type_)
    if get_origin(bare) in (Union, types.UnionType):
        return tuple(inner for member in get_args(bare) for inner in _alternatives(member))
    return (bare,)


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _name(type_: Any) -> str:
    """How a type is called in a message."""
    if _is_struct(type_):
        return "a mapping"
    if isinstance(type_, type) and issubclass(type_, Enum):
        return "one of " + ", ".join(str(member.value) for member in type_)
    if get_origin(type_) is Literal:
        return "one of " + ", ".join(str(value) for value in get_args(type_))
    return _PLAIN_NAMES.get(get_origin(type_) or type_, str(type_))


def _expected(type_: Any) -> str:
    names = dict.fromkeys(_name(member) for member in _alternatives(type_) if member is not type(None))
    return " or ".join(names) or "nothing"


def _words(type_: Any) -> list[str]:
    """The words a closed set of values is spelled with."""
    words: list[str] = []
    for member in _alternatives(type_):
        if isinstance(member, type) and issubclass(member, Enum):
            words += [str(value.value) for value in member]
        elif get_origin(member) is Literal:
            words += [str(value) for value in get_args(member)]
    return words


class _Walk:
    """Goes down a tree and its type together. What is returned after a problem is never used."""

    def __init__(self, file: str, problems: list[InputError]) -> None:
        self._file = file
        self._problems = problems

    def decode(self, node: Node, type_: Any, *, path: str) -> Any:
        members = _alternatives(type_)
        if Any in members:
            return _plain(node)
        before = len(self._problems)
        match node.value:
            case dict() as entries:
                value: Any = self._mapping(node, entries, members, type_, path=path)
            case list() as items:
                value = self._sequence(node, items, members, type_, path=path)
            case leaf:
                value = leaf
        if len(self._problems) > before:
            return None
        try:
            # Structs inside pass through as they are, so this looks at one level only.
            return msgspec.convert(value, type_)
        except msgspec.ValidationError as error:
            self._refuse(node, type_, error, path=path)
            return None

    def _report(self, node: Node, code: str, what: str, *, path: str, suggestion: str | None = None) -> None:
        problem = InputError(code, what, file=self._file, line=node.line, key=path or None, suggestion=suggestion)
        self._problems.append(problem)

    def _refuse(self, node: Node, type_: Any, error: msgspec.ValidationError, *, path: str) -> None:
        """Says in the user's words why a value does not fit."""
        leaf = node.value
        words = _words(type_)
        if isinstance(leaf, str) and looks_secret(leaf):
            self._report(node, "spec.secret-literal", WRITTEN_OUT, path=path, suggestion=INSTEAD)
            return
        if isinstance(leaf, str) and words:
            what = f"`{leaf[:MAX_WORD]}` is not {_expected(type_)}"
            self._report(node, "spec.type", what, path=path, suggestion=suggest(leaf, words, noun="Known"))
            return
        found = _found(node)
        if any(_fits(leaf, member) for member in _alternatives(type_)):
            # The type is right, the value is not: a bound of the type, or a check of the struct itself.
            value = f", found {leaf}" if isinstance(leaf, int | float) else ""
            self._report(node, "spec.type", f"{_in_our_words(error)}{value}", path=path)
            return
        suggestion = None
        if str in _alternatives(type_) and isinstance(leaf, bool | int | float):
            suggestion = "Put it in quotes."
        elif isinstance(leaf, str) and any(get_origin(member) in (list, tuple) for member in _alternatives(type_)):
            suggestion = f"Write a list: [{leaf[:MAX_WORD]}]."
        elif bool in _alternatives(type_) and leaf in ("yes", "no", "on", "off"):
            suggestion = "Write true." if leaf in ("yes", "on") else "Write false."
        self._report(node, "spec.type", f"expected {_expected(type_)}, found {found}", path=path, suggestion=suggestion)

    def _sequence(self, node: Node, items: list[Node], members: tuple[Any, ...], type_: Any, *, path: str) -> Any:
        for member in members:
            if get_origin(member) in (list, tuple):
                inner = get_args(member)[0]
                return [self.decode(item, inner, path=child_path(path, at)) for at, item in enumerate(items)]
        self._report(node, "spec.type", f"expected {_expected(type_)}, found a list", path=path)
        return None

    def _mapping(self, node: Node, entries: dict[str, Node], members: tuple[Any, ...], type_: Any, *, path: str) -> Any:
        for member in members:
            if get_origin(member) is dict:
                key_type, inner = get_args(member)
                for key, child in entries.items():
                    self.decode(Node(line=child.line, value=key), key_type, path=child_path(path, key))
                return {key: self.decode(child, inner, path=child_path(path, key)) for key, child in entries.items()}
        structs = [member for member in members if _is_struct(member)]
        if not structs:
            self._report(node, "spec.type", f"expected {_expected(type_)}, found a mapping", path=path)
            return None
        struct = structs[0] if _tag(structs[0]) is None else self._tagged(node, entries, structs, path=path)
        return None if struct is None else self._struct(node, entries, struct, path=path)

    def _tagged(self, node: Node, entries: dict[str, Node], structs: list[Any], *, path: str) -> Any:
        """The member of the union that the entry's tag names."""
        field = structs[0].__struct_config__.tag_field
        known = {str(_tag(struct)): struct for struct in structs}
        choice = ", ".join(known)
        if field not in entries:
            where = child_path(path, field)
            self._report(node, "spec.missing-key", f"`{field}` is missing", path=where, suggestion=f"Known: {choice}.")
            return None
        named = entries[field]
        if isinstance(named.value, str) and named.value in known:
            return known[named.value]
        if isinstance(named.value, str) and looks_secret(named.value):
            where = child_path(path, field)
            self._report(named, "spec.secret-literal", WRITTEN_OUT, path=where, suggestion=INSTEAD)
            return None
        what = f"expected one of {choice}, found {_found(named)}"
        suggestion = None
        if isinstance(named.value, str):
            what = f"`{named.value[:MAX_WORD]}` is not one of {choice}"
            suggestion = suggest(named.value, known, noun="Known")
        self._report(named, "spec.type", what, path=child_path(path, field), suggestion=suggestion)
        return None

    def _struct(self, node: Node, entries: dict[str, Node], struct: Any, *, path: str) -> Any:
        fields = _fields(struct)
        config = struct.__struct_config__
        built: dict[str, Any] = {}
        meant: set[str | None] = set()
        for key, child in entries.items():
            where = child_path(path, key)
            if key in fields:
                built[key] = self.decode(child, fields[key].type, path=where)
            elif config.tag is not None and key == config.tag_field:
                built[key] = child.value
            elif len(self._problems) < MAX_PROBLEMS:
                free = [name for name in fields if name not in entries]
                meant.add(nearest(key, free))
                suggestion = suggest(key, free if nearest(key, free) else fields, noun="Known keys")
                self._report(child, "spec.unknown-key", "an unknown key", path=where, suggestion=suggestion)
        for key, field in fields.items():
            # A misspelled key is one fault, not two.
            if field.required and key not in entries and key not in meant:
                self._report(node, "spec.missing-key", f"`{key}` is missing", path=child_path(path, key))
        return built


@cache
def _fields(struct: Any) -> dict[str, msgspec.structs.FieldInfo]:
    """By the name they are written with. Working them out costs more than decoding a mission."""
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def _in_our_words(error: msgspec.ValidationError) -> str:
    """
    >>> _in_our_words(msgspec.ValidationError("Expected `array` of length >= 1 - at `$.a`"))
    'expected a list of length >= 1'
    """
    text = re.sub(r" - at `\$.*`$", "", str(error))
    for native, ours in (("array", list), ("str", str), ("int", int), ("float", float), ("object", dict)):
        text = text.replace(f"Expected `{native}`", f"expected {_PLAIN_NAMES[ours]}")
    return text


def _tag(struct: Any) -> str | int | None:
    tag: str | int | None = struct.__struct_config__.tag
    return tag


def _found(node: Node) -> str:
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    return _PLAIN_NAMES[None if node.value is None else type(node.value)]


def _fits(value: Any, member: Any) -> bool:
    shape = get_origin(member) or member
    if _is_struct(shape):
        return isinstance(value, dict)
    if shape is tuple:
        return isinstance(value, list)
    return type(value) is shape or (shape is float and type(value) is int)


def _plain(node: Node) -> Any:
    match node.value:
        case dict() as entries:
            return {key: _plain(child) for key, child in entries.items()}
        case list() as items:
            return [_plain(item) for item in items]
        case leaf:
            return leaf
