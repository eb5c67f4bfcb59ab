"""The filter every byte passes on its way to the disk: known secrets out, everything else as it was."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.evidence.needles import Masked, Needles, escape, placeholder
from proctor.evidence.secrets import Secret

# These values say what a frame is: a secret that is spelled like one must not change its meaning.
_ENVELOPE_DEPTH = 3
PROTECTED_KEYS = frozenset({"method", "status", "type"})

# At a stream's end, a shorter beginning of a secret is let go.
LEAST_TAIL_CHARS = 6

_decode = msgspec.json.Decoder().decode
_check = msgspec.json.Decoder(msgspec.Raw).decode
_quote = json.JSONEncoder(ensure_ascii=False).encode
_unquote = json.JSONDecoder().decode

# The parts of valid JSON: a string, with the colon that makes it a key; a bracket or comma; a number or literal.
_PART = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")(\s*:)?|[{}\[\],]|[^\s"{}\[\],:]+')

# `\u0073` or a surrogate pair, but no lone surrogate.
_ESCAPE = re.compile(r"(?i)\\u(?:d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(?!d[89a-f])[0-9a-f]{4})")

_Path = Sequence[str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStream:
    """Says that one leaf of a frame is a piece of a streamed text."""

    key: str
    path: tuple[str | int, ...]


# Results are structs, not dataclasses: one is made for every frame, in a seventh of the time.
class RedactedLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`carried`: text of the frame's stream was moved out of it to a later frame, or into it from an earlier one."""

    raw: bytes
    names: tuple[str, ...] = ()
    carried: bool = False


class RedactedText(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    text: str
    names: tuple[str, ...] = ()


class _Held(msgspec.Struct, frozen=True, gc=False):
    """A stream's tail that may be the beginning of a needle; `reach` of its characters are masked already."""

    tail: str = ""
    reach: int = 0
    last: str = ""

    @property
    def is_waiting(self) -> bool:
        return self.reach < len(self.tail)


_NOTHING = _Held()


class Redactor:
    r"""Takes known secrets out of JSON lines, texts, values and text streams.

    JSON is changed leaf by leaf and key by key, each decoded first; all bytes around a changed leaf stay as they were.

    >>> redactor = Redactor([Secret(name="API_KEY", value="sk-live-0123")])
    >>> redactor.line(rb'{"id": 1, "result": {"out": "key: \u0073k-live-0123"}}').raw
    b'{"id": 1, "result": {"out": "key: [redacted:API_KEY]"}}'
    >>> said = TextStream(key="thread/item/text", path=("delta",))
    >>> [redactor.line(raw, stream=said).raw for raw in (b'{"delta":"my sk-li"}', b'{"delta":"ve-0123"}')]
    [b'{"delta":"my "}', b'{"delta":"[redacted:API_KEY]"}']
    """

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._needles = Needles(secrets)
        self._held: dict[str, _Held] = {}

    def line(self, raw: bytes, *, stream: TextStream | None = None) -> RedactedLine:
        """One JSON value, or whatever bytes came in place of one."""
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return self._garbled(raw)
        is_suspect = self._needles.may_be_in(text)
        if not is_suspect:
            if stream is None:
                return RedactedLine(raw=raw)
            piece = _leaf(raw, path=stream.path)
            if piece is not None:
                if stream.key not in self._held and self._needles.open_at(piece) == len(piece):
                    return RedactedLine(raw=raw)
                part = _sole_value(text, path=stream.path)
                if part is not None:
                    return self._rewritten(raw, text=text, leaves=[(part, stream.path)], stream=stream)
        try:
            _check(raw)
        except (msgspec.DecodeError, RecursionError):
            return self._garbled(raw)
        return self._rewritten(raw, text=text, leaves=_leaves(text), stream=stream)

    def text(self, text: str) -> RedactedText:
        """Plain text. Where it holds JSON, whole or broken, odd escapes are undone if that uncovers a secret."""
        masked = self._needles.mask(text)
        names = masked.names
        if "\\u" in masked.text:
            uncovered = self._needles.mask(_ESCAPE.sub(_usual, masked.text))
            if uncovered.names:
                masked, names = uncovered, tuple(dict.fromkeys(names + uncovered.names))
        return RedactedText(text=masked.text, names=names)

    def value(self, value: Any) -> Any:
        """Any JSON-like value, structs among them: its strings, numbers and keys. What is clean stays as it is."""
        return self._value(value, path=())

    def finish(self, key: str) -> RedactedText | None:
        """Ends a text stream and gives out what was held back of it, masked if it tells too much of a secret."""
        held = self._held.pop(key, _NOTHING)
        if not held.is_waiting:
            return None
        if len(held.tail) < LEAST_TAIL_CHARS:
            return RedactedText(text=held.tail[held.reach :])
        name = self._needles.name_of_start(held.tail)
        is_named = held.reach > 0 and held.last == name
        return RedactedText(text="" if is_named else placeholder(name), names=(name,))

    def open_streams(self) -> tuple[str, ...]:
        """The keys of the streams of which something is held back."""
        return tuple(self._held)

    def _feed(self, key: str, piece: str) -> tuple[Masked, bool]:
        """What may be said of a stream now, and whether text moves between this piece and its neighbours."""
        held = self._held.pop(key, _NOTHING)
        seen = held.tail + piece
        end = self._needles.open_at(seen)
        masked = self._needles.mask(seen, end=end, reach=held.reach, last=held.last)
        kept = _NOTHING
        if end < len(seen):
            kept = self._held[key] = _Held(seen[end:], max(0, masked.reach - end), masked.last)
        return masked, held.is_waiting or kept.is_waiting

    def _garbled(self, raw: bytes) -> RedactedLine:
        redacted = self.text(raw.decode(errors="surrogateescape"))
        if not redacted.names:
            return RedactedLine(raw=raw)
        return RedactedLine(raw=redacted.text.encode(errors="surrogateescape"), names=redacted.names)

    def _rewritten(
        self, raw: bytes, *, text: str, leaves: Iterable[tuple[re.Match[str], _Path]], stream: TextStream | None
    ) -> RedactedLine:
        """Valid JSON, with those of the given leaves replaced that must be."""
        pieces: list[str] = []
        names: dict[str, None] = {}
        carried = False
        done = 0
        for part, path in leaves:
            string, colon = part.groups()
            old = part[0] if string is None else _unquoted(string)
            if stream is not None and string and not colon and tuple(path) == stream.path:
                masked, is_moved = self._feed(stream.key, old)
                new, found = masked.text, masked.names
                carried = carried or is_moved
            elif _is_protected(path):
                continue
            elif string is None:
                name = self._needles.name_of(old.lstrip("-"))
                new, found = (placeholder(name), (name,)) if name else (old, ())
            else:
                redacted = self.text(old)
                new, found = redacted.text, redacted.names
            if new != old:
                pieces += text[done : part.start()], _quote(new)
                done = part.end(1) if string else part.end()
                names.update(dict.fromkeys(found))
        if not pieces:
            return RedactedLine(raw=raw)
        pieces.append(text[done:])
        return RedactedLine(raw="".join(pieces).encode(errors="replace"), names=tuple(names), carried=carried)

    def _value(self, value: Any, *, path: tuple[str | int, ...]) -> Any:
        match value:
            case dict():
                return {self._value(key, path=()): self._value(item, path=(*path, key)) for key, item in value.items()}
            case list():
                return [self._value(item, path=(*path, index)) for index, item in enumerate(value)]
            case tuple():
                return tuple(self._value(item, path=(*path, index)) for index, item in enumerate(value))
            case msgspec.Struct():
                fields = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
                clean = {name: self._value(getattr(value, name), path=(*path, key)) for name, key in fields}
                return msgspec.structs.replace(value, **clean)
            case str():
                redacted = self.text(value)
                return redacted.text if redacted.names and not _is_protected(path) else value
            case int() | float():
                name = self._needles.name_of(_spelled(value).lstrip("-"))
                return placeholder(name) if name and not _is_protected(path) else value
            case None | msgspec.UNSET:
                return value
            case _:
                raise TypeError(f"cannot redact a value of type {type(value).__name__}")


def _is_protected(path: _Path) -> bool:
    # Only where the protocol itself speaks, such as params.item.type: below that an agent may put anything anywhere.
    is_envelope = 1 <= len(path) <= _ENVELOPE_DEPTH
    return is_envelope and (path[-1] in PROTECTED_KEYS or (len(path) == 1 and path[0] == "id"))


def _spelled(number: float) -> str:
    try:
        return repr(number)
    except ValueError:  # Python does not spell integers of more than 4,300 digits
        return ""


def _unquoted(string: str) -> str:
    return str(_unquote(string)) if "\\" in string else string[1:-1]


def _usual(escaped: re.Match[str]) -> str:
    """The usual spelling of an escaped character, which is still an escape if the character needs one."""
    return escape(_unquoted(f'"{escaped[0]}"'))


def _leaf(raw: bytes, *, path: _Path) -> str | None:
    """The string at a path; nothing if there is none, or if this decoder cannot say."""
    try:
        value = _decode(raw)
        for step in path:
            value = value[step]
    except (msgspec.DecodeError, RecursionError, LookupError, TypeError):
        return None
    return value if isinstance(value, str) else None


def _sole_value(text: str, *, path: _Path) -> re.Match[str] | None:
    """The leaf at a path that surely leads to one, found without a walk if its key is spelled only once in the JSON."""
    spelling = _quote(path[-1]) if path and isinstance(path[-1], str) else ""
    if not spelling or text.count(spelling) != 1:
        return None
    return _PART.search(text, text.index(spelling) + len(spelling))


def _leaves(text: str) -> Iterator[tuple[re.Match[str], _Path]]:
    """Keys, strings and scalars of valid JSON in order, each with the path where it stands; of a key, its value's."""
    path: list[str | int] = []
    for part in _PART.finditer(text):
        string, colon = part.groups()
        if colon:
            path[-1] = _unquoted(string)
        if string is None:
            mark = part[0]
            if mark == ",":
                if isinstance(path[-1], int):
                    path[-1] += 1
                continue
            if mark in "{[":
                path.append(0 if mark == "[" else "")
                continue
            if mark in "}]":
                path.pop()
                continue
        yield part, path
