"""Decode files into structs whose keys have line numbers. All errors of a file are reported together."""

import re
import stat
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec

from proctor import decoding
from proctor.errors import InputError
from proctor.spec.collect_errors import MAX_ERRORS, raise_collected
from proctor.spec.literal import LITERAL_MESSAGE, LITERAL_SUGGESTION, looks_secret
from proctor.spec.probe_options import ProbeOptions
from proctor.spec.suggest import MAX_WORD, nearest, suggest, suggest_nearest
from proctor.spec.tree import Node, child_path, read_tree

MAX_FILE_BYTES: Final = 4 * 1024 * 1024

T = TypeVar("T")

FindKind: TypeAlias = Callable[[str], type[ProbeOptions] | None]
"""Returns the struct of a kind of probe that is not built in; None if there is no such kind. Raises InputError if it
may not be used."""


def find_no_kind(_kind: str) -> None:
    """Find no kind of probe beside those that are built in."""


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

_NEWER = re.compile(rb"^[{\s]*[\"']?version[\"']?\s*:\s*(?:[2-9]|[1-9][0-9]+)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile(Generic[T]):
    """A decoded value, the path of its file for messages, and the parsed file with line numbers."""

    value: T
    file: str
    root: Node

    def line_of(self, key_path: str) -> int:
        """Return the line of a key such as `missions[0].probes[1].command`; if it is absent, the line of its parent."""
        node = self.root
        for step in _STEP.finditer(key_path):
            child: Node | None = None
            if step["index"] is not None:
                index = int(step["index"])
                if isinstance(node.value, list) and index < len(node.value):
                    child = node.value[index]
            elif isinstance(node.value, dict):
                quoted = step["quoted"]
                key = step["plain"] if quoted is None else re.sub(r"(?s)\\(.)", r"\1", quoted)
                child = node.value.get(key)
            if child is None:
                break
            node = child
        return node.line

    def error(self, code: str, what: str, *, key: str, suggestion: str | None = None) -> InputError:
        """Return an error at `key` of this file, with its line."""
        return InputError(code, what, file=self.file, line=self.line_of(key), key=key or None, suggestion=suggestion)


def decode_file(path: Path, type_: type[T]) -> SourceFile[T]:
    """Read and decode a file. Raises InputError with all errors."""
    return decode_bytes(read_source(path), type_, file=str(path))


def read_source(path: Path) -> bytes:
    """Read a regular file of at most MAX_FILE_BYTES. Raises InputError for others; reading a pipe could hang."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "this is a folder, not a file" if stat.S_ISDIR(mode) else "this is not a regular file"
            raise InputError("spec.unreadable", what, file=str(path))
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError)
        what = "this file does not exist" if is_absent else f"this file cannot be read: {error.strerror or error}"
        close = similar_name(path) if is_absent else None
        suggestion = None if close is None else f"Did you mean `{path.with_name(close)}`?"
        raise InputError("spec.unreadable", what, file=str(path), suggestion=suggestion) from error
    except ValueError as error:  # a NUL in the path
        raise InputError("spec.unreadable", str(error), file=str(path)) from error
    if len(data) > MAX_FILE_BYTES:
        raise InputError("spec.unreadable", f"the file is larger than {MAX_FILE_BYTES // 1024**2} MiB", file=str(path))
    return data


def similar_name(path: Path) -> str | None:
    """Return the name in the same folder that is most similar to a missing file's; None if none is.

    Names are compared without their suffix: all specs end with `.yaml`.
    """
    try:
        names = {each.stem: each.name for each in sorted(path.parent.iterdir()) if each.name != path.name}
    except OSError:
        return None
    close = nearest(path.stem, names)
    return None if close is None else names[close]


def decode_bytes(data: bytes, type_: type[T], *, file: str, find_kind: FindKind = find_no_kind) -> SourceFile[T]:
    """Decode YAML into a struct. Raises InputError with all errors, at `file`. `find_kind` is as for `decode_tree`."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("spec.syntax", f"not UTF-8: {error.reason}", file=file, line=line) from error
    root, errors = read_tree(text, file=file)
    if root is None:
        raise_collected(errors)
    try:
        return decode_tree(root, type_, file=file, errors=errors, find_kind=find_kind)
    except InputError as error:
        _refuse_other_versions(error, data)
        raise


def _refuse_other_versions(error: InputError, source: bytes) -> None:
    """Raise only the version error if the file has another version: its other keys may be right in that version."""
    for each in error.all_errors:
        if each.key == "version" and each.code == "spec.type":
            is_newer = _NEWER.search(source) is not None
            raise InputError(
                "spec.version",
                "this Proctor supports only `version: 1`",
                file=each.file,
                line=each.line,
                key="version",
                suggestion="Install a newer Proctor." if is_newer else "Write `version: 1`.",
            ) from error


def decode_tree(
    root: Node,
    type_: type[T],
    *,
    file: str,
    errors: Iterable[InputError] = (),
    find_kind: FindKind = find_no_kind,
) -> SourceFile[T]:
    """Decode a tree into a struct. Raises InputError with `errors`, those found by the parser, and all others.

    `find_kind` returns the structs of kinds of probe that are not built in.
    """
    all_errors = list(errors)
    value = _Decoder(file, all_errors, find_kind).decode(root, type_, path="")
    if all_errors:
        raise_collected(all_errors)
    return SourceFile(value=value, file=file, root=root)


def _bare(type_: Any) -> Any:
    """Return the type inside NewType and Annotated."""
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
    """Return the name of a type for messages."""
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
    """Return the words of a type with a closed set of values."""
    words: list[str] = []
    for member in _alternatives(type_):
        if isinstance(member, type) and issubclass(member, Enum):
            words += [str(value.value) for value in member]
        elif get_origin(member) is Literal:
            words += [str(value) for value in get_args(member)]
    return words


class _Decoder:
    """Decode a tree by its type, recursively. After an error the returned value is not used."""

    def __init__(self, file: str, errors: list[InputError], find_kind: FindKind) -> None:
        self._file = file
        self._errors = errors
        self._find_kind = find_kind
        self._plugin_structs: set[type] = set()

    def decode(self, node: Node, type_: Any, *, path: str) -> Any:
        members = _alternatives(type_)
        if Any in members:
            return _plain(node)
        before = len(self._errors)
        match node.value:
            case dict() as entries:
                value: Any = self._mapping(node, entries, members, type_, path=path)
            case list() as items:
                value = self._sequence(node, items, members, type_, path=path)
            case leaf:
                value = leaf
        if len(self._errors) > before:
            return None
        if type(value) in self._plugin_structs or self._has_plugin_probe(value):
            return value
        try:
            # The union of all kinds does not contain those of plugins, so these are added after the check.
            plugin_lists = {
                key: value.pop(key)
                for key, each in (list(value.items()) if isinstance(value, dict) else ())
                if self._has_plugin_probe(each)
            }
            # Inner structs are already decoded, so this checks one level only.
            converted = decoding.convert(value, type_)
            return msgspec.structs.replace(converted, **plugin_lists) if plugin_lists else converted
        except msgspec.ValidationError as error:
            self._refuse(node, type_, error, path=path)
            return None

    def _report(self, node: Node, code: str, what: str, *, path: str, suggestion: str | None = None) -> None:
        error = InputError(code, what, file=self._file, line=node.line, key=path or None, suggestion=suggestion)
        self._errors.append(error)

    def _refuse(self, node: Node, type_: Any, error: msgspec.ValidationError, *, path: str) -> None:
        """Report why a value does not match its type."""
        leaf = node.value
        words = _words(type_)
        if isinstance(leaf, str) and looks_secret(leaf):
            self._report(node, "spec.secret-literal", LITERAL_MESSAGE, path=path, suggestion=LITERAL_SUGGESTION)
            return
        if isinstance(leaf, str) and words:
            what = f"`{leaf[:MAX_WORD]}` is not {_expected(type_)}"
            self._report(node, "spec.type", what, path=path, suggestion=suggest_nearest(leaf, words))
            return
        if any(_matches_type(leaf, member) for member in _alternatives(type_)):
            # The type is right, but the value is out of bounds or the struct's own check refused it.
            value = f", found {leaf}" if isinstance(leaf, int | float) else ""
            self._report(node, "spec.type", f"{_plain_message(error)}{value}", path=path)
            return
        suggestion = None
        if str in _alternatives(type_) and isinstance(leaf, bool | int | float):
            suggestion = "Put it in quotes."
        elif isinstance(leaf, str) and any(get_origin(member) in (list, tuple) for member in _alternatives(type_)):
            suggestion = f'Write a list: ["{leaf[:MAX_WORD]}"].'
        elif bool in _alternatives(type_) and leaf in ("yes", "no", "on", "off"):
            suggestion = "Write true." if leaf in ("yes", "on") else "Write false."
        self._report(
            node, "spec.type", f"expected {_expected(type_)}, found {_describe(node)}", path=path, suggestion=suggestion
        )

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
        if struct is not None and struct not in structs:
            self._plugin_structs.add(struct)
            return self.decode(node, struct, path=path)
        return None if struct is None else self._struct(node, entries, struct, path=path)

    def _has_plugin_probe(self, value: Any) -> bool:
        return isinstance(value, list) and any(type(each) in self._plugin_structs for each in value)

    def _tagged(self, node: Node, entries: dict[str, Node], structs: list[Any], *, path: str) -> Any:
        """Return the member of a tagged union that a mapping's tag names; None after an error."""
        field = structs[0].__struct_config__.tag_field
        known = {str(_tag(struct)): struct for struct in structs}
        choice = ", ".join(known)
        if field not in entries:
            where = child_path(path, field)
            self._report(
                node,
                "spec.missing-key",
                f"required key `{field}` is missing",
                path=where,
                suggestion=f"Add `{field}: {choice}`." if len(known) == 1 else f"Add `{field}`, one of {choice}.",
            )
            return None
        tag = entries[field]
        if isinstance(tag.value, str) and tag.value in known:
            return known[tag.value]
        if isinstance(tag.value, str) and looks_secret(tag.value):
            where = child_path(path, field)
            self._report(tag, "spec.secret-literal", LITERAL_MESSAGE, path=where, suggestion=LITERAL_SUGGESTION)
            return None
        if isinstance(tag.value, str) and issubclass(structs[0], ProbeOptions):
            try:
                plugin = self._find_kind(tag.value)
            except InputError as error:
                where = child_path(path, field)
                self._report(tag, error.code, error.what, path=where, suggestion=error.suggestion)
                return None
            if plugin is not None:
                return plugin
        what = f"expected one of {choice}, found {_describe(tag)}"
        suggestion = None
        if isinstance(tag.value, str):
            are = f"the only {field} is `{choice}`" if len(known) == 1 else f"the {field}s are {choice}"
            what = f"unknown {field} `{tag.value[:MAX_WORD]}`; {are}"
            suggestion = suggest_nearest(tag.value, known)
        self._report(tag, "spec.type", what, path=child_path(path, field), suggestion=suggestion)
        return None

    def _struct(self, node: Node, entries: dict[str, Node], struct: Any, *, path: str) -> Any:
        fields = _fields(struct)
        config = struct.__struct_config__
        values: dict[str, Any] = {}
        misspelled: set[str | None] = set()
        for key, child in entries.items():
            where = child_path(path, key)
            if key in fields:
                values[key] = self.decode(child, fields[key].type, path=where)
            elif config.tag is not None and key == config.tag_field:
                values[key] = child.value
            elif len(self._errors) < MAX_ERRORS:
                free = [name for name in fields if name not in entries]
                misspelled.add(nearest(key, free))
                suggestion = suggest(key, free if nearest(key, free) else fields, noun="Known keys")
                self._report(
                    child, "spec.unknown-key", f"unknown key `{key[:MAX_WORD]}`", path=where, suggestion=suggestion
                )
        for key, field in fields.items():
            # A misspelled key is one error, not two.
            if field.required and key not in entries and key not in misspelled:
                self._report(node, "spec.missing-key", f"required key `{key}` is missing", path=child_path(path, key))
        return values


@cache
def _fields(struct: Any) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the fields of a struct by their encoded names. Cached, because it is slower than decoding a mission."""
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def _plain_message(error: msgspec.ValidationError) -> str:
    """Return the message of msgspec with YAML names for types, and without its path.

    >>> _plain_message(msgspec.ValidationError("Expected `array` of length >= 1 - at `$.a`"))
    'expected a list of length >= 1'
    """
    text = re.sub(r" - at `\$.*`$", "", str(error))
    for native, plain in (("array", list), ("str", str), ("int", int), ("float", float), ("object", dict)):
        text = text.replace(f"Expected `{native}`", f"expected {_PLAIN_NAMES[plain]}")
    return text


def _tag(struct: Any) -> str | int | None:
    tag: str | int | None = struct.__struct_config__.tag
    return tag


def _describe(node: Node) -> str:
    """Return what a value is, for messages."""
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    return _PLAIN_NAMES[None if node.value is None else type(node.value)]


def _matches_type(value: Any, member: Any) -> bool:
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
