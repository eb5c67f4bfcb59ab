"""Removes secrets from everything that is written to evidence, and changes nothing else."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from json.encoder import encode_basestring
from typing import Any

import msgspec

from proctor import decoding
from proctor.evidence import scan
from proctor.evidence.mask import Masker, placeholder
from proctor.evidence.needles import Needles
from proctor.evidence.prefilter import Prefilter, to_bytes
from proctor.evidence.secrets import Secret
from proctor.spec.literal import MIN_SECRET_CHARS

ACCOUNT = "account"
"""The name in the placeholder of account data."""

_decode = decoding.json_decoder()
_encode = msgspec.json.encode
_check = decoding.json_decoder(msgspec.Raw)
_quote = encode_basestring
_unquote = json.JSONDecoder().decode

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SCALAR = r'[^\s"{}\[\],:]++'
# The parts of valid JSON: a string, with the colon that makes it a key; a bracket or comma; a number or literal.
_PART = re.compile(rf"({_STRING})(\s*:)?|[{{}}\[\],]|{_SCALAR}")
# A few parts of valid JSON, a key always with its string or scalar.
_STRETCH = re.compile(
    rf"(?:{_STRING}(?:\s*+:\s*+(?:{_STRING}|{_SCALAR})?+)?+|[{{}}\[\],\s]++|{_SCALAR}){{1,16}}+".encode()
)
_LONG_BYTES = 16 * 1024
"""From this size on, a line is searched for the leaves to look at. A walk over all of a shorter one takes as long."""
_MOST_HITS = 256
"""With so many hits, a walk over all leaves takes as long."""

Path = tuple[str | int, ...]


# Structs, not dataclasses: some are created for every frame, and a struct takes a seventh of the time.
class TextStream(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """States that one value in a frame is a piece of a streamed text."""

    key: str
    """Identifies the stream."""
    path: Path
    """Path of the value in the frame."""


class RedactedLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line after redaction."""

    raw: bytes
    names: tuple[str, ...] = ()
    """Names of the secrets that were replaced."""
    carried: bool = False
    """Whether streamed text was moved from this line to a later one, or to it from an earlier one."""


class RedactedText(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A text after redaction."""

    text: str
    names: tuple[str, ...] = ()
    """Names of the secrets that were replaced."""


class _LineCache:
    """Lines that were rewritten before: every attempt of a run records the same facts, including the tripwire."""

    _MOST_LINES = 64
    _MOST_BYTES = 16 * 1024

    def __init__(self) -> None:
        self._lines: dict[bytes, RedactedLine] = {}
        self.get = self._lines.get

    def store(self, raw: bytes, line: RedactedLine) -> RedactedLine:
        if len(raw) <= self._MOST_BYTES:
            if len(self._lines) >= self._MOST_LINES:
                self._lines.clear()
            self._lines[raw] = line
        return line


@lru_cache(maxsize=4)
def _prepared(
    secrets: tuple[Secret, ...], private: frozenset[tuple[str, ...]]
) -> tuple[Needles, Prefilter, _LineCache]:
    """Build what is slow to build and never changes, once for all attempts of a run."""
    needles = Needles(secrets)
    return needles, Prefilter(needles, keys={path[-1] for path in private}), _LineCache()


class Redactor:
    r"""Removes secrets from JSON lines, texts, values and text streams.

    JSON is changed leaf by leaf and key by key, each decoded first. All bytes around a changed leaf stay the same.
    `private` are the paths in frames below which everything is account data.

    >>> redactor = Redactor([Secret(name="API_KEY", value="sk-live-0123")])
    >>> redactor.line(rb'{"id": 1, "result": {"out": "key: \u0073k-live-0123"}}').raw
    b'{"id": 1, "result": {"out": "key: [redacted:API_KEY]"}}'
    >>> text = TextStream(key="thread/item/text", path=("delta",))
    >>> [redactor.line(raw, stream=text).raw for raw in (b'{"delta":"my sk-li"}', b'{"delta":"ve-0123"}')]
    [b'{"delta":"my "}', b'{"delta":"[redacted:API_KEY]"}']
    """

    def __init__(self, secrets: Sequence[Secret], *, private: frozenset[tuple[str, ...]] = frozenset()) -> None:
        self._needles, self._prefilter, self._cache = _prepared(tuple(secrets), private)
        self._private = private
        self._private_sizes = sorted({len(path) for path in private})
        self._private_keys = {path[-1] for path in private}
        self._masker = Masker(self._needles)

    # ── JSON lines ──

    def lines(self, batch: Sequence[tuple[bytes, TextStream | None]]) -> list[RedactedLine]:
        """Redact a batch of lines. A batch without secrets costs one search."""
        is_clean = len(batch) > 1 and not self._prefilter.may_hold(b"\n".join([raw for raw, _ in batch]))
        return [
            RedactedLine(raw=raw) if is_clean and stream is None else self.line(raw, stream=stream, is_clean=is_clean)
            for raw, stream in batch
        ]

    def line(self, raw: bytes, *, stream: TextStream | None = None, is_clean: bool = False) -> RedactedLine:
        """Redact one line, which is usually a JSON value. `is_clean` states that the prefilter found nothing in it."""
        if is_clean or not self._prefilter.may_hold(raw):
            if stream is None:
                return RedactedLine(raw=raw)
            piece = _leaf(raw, path=stream.path)
            if piece is not None:
                if self._masker.is_plain(stream.key, piece):
                    return RedactedLine(raw=raw)
                text = raw.decode()
                part = _sole_value(text, path=stream.path)
                if part is not None:
                    masked, is_moved = self._masker.feed(stream.key, piece, is_clean=True)
                    if masked.text == piece:
                        return RedactedLine(raw=raw)
                    new = f"{text[: part.start()]}{_quote(masked.text)}{text[part.end() :]}"
                    return RedactedLine(raw=new.encode(), names=masked.names, carried=is_moved)
        elif stream is None and (cached := self._cache.get(raw)) is not None:
            return cached
        try:
            text = raw.decode()
            _check(raw)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
            return self._redact_invalid_json(raw)
        leaves = self._leaves_to_check(raw, text) if stream is None else _leaves(text)
        rewritten = self._rewrite(raw, text=text, leaves=leaves, stream=stream)
        # With a stream, the result depends on earlier lines, so only lines without one are cached.
        return rewritten if stream is not None else self._cache.store(raw, rewritten)

    def _leaves_to_check(self, raw: bytes, text: str) -> Iterable[tuple[re.Match[str], Sequence[str | int]]]:
        """Return the leaves of valid JSON that may have to be masked: of a long text, only those at hits."""
        if len(raw) < _LONG_BYTES:
            return _leaves(text)
        hits = list(islice(self._prefilter.hits(raw), _MOST_HITS))
        if len(hits) == _MOST_HITS:
            return _leaves(text)
        found = list(_leaves_at(hits, raw=raw, text=text))
        # Whether a value is account data depends on its whole path.
        is_private = any(path and path[0] in self._private_keys for _, path in found)
        return _leaves(text) if is_private else found

    def _redact_invalid_json(self, raw: bytes) -> RedactedLine:
        redacted = self.text(raw.decode(errors="surrogateescape"))
        if not redacted.names:
            return RedactedLine(raw=raw)
        return RedactedLine(raw=redacted.text.encode(errors="surrogateescape"), names=redacted.names)

    def _rewrite(
        self,
        raw: bytes,
        *,
        text: str,
        leaves: Iterable[tuple[re.Match[str], Sequence[str | int]]],
        stream: TextStream | None,
    ) -> RedactedLine:
        """Replace the given leaves of valid JSON where they contain secrets."""
        pieces: list[str] = []
        names: dict[str, None] = {}
        carried = False
        done = 0
        for part, path in leaves:
            string, colon = part.groups()
            old = part[0] if string is None else _unquoted(string)
            if stream is not None and string and not colon and tuple(path) == stream.path:
                masked, is_moved = self._masker.feed(stream.key, old)
                new, new_names = masked.text, masked.names
                carried = carried or is_moved
            elif colon:
                new, new_names = self._text(old)
            else:
                new, new_names = self._leaf(old, path=path, is_string=string is not None)
            if new != old:
                pieces += text[done : part.start()], _quote(new)
                done = part.end(1) if string else part.end()
                names.update(dict.fromkeys(new_names))
        if not pieces:
            return RedactedLine(raw=raw)
        pieces.append(text[done:])
        return RedactedLine(raw="".join(pieces).encode(errors="replace"), names=tuple(names), carried=carried)

    def _leaf(self, old: str, *, path: Sequence[str | int], is_string: bool) -> tuple[str, tuple[str, ...]]:
        name: str | None
        if self._private and self._is_private(path):
            name = None if old == "null" and not is_string else ACCOUNT
        elif is_string:
            name = scan.kind_of(path[-1], old) if path and isinstance(path[-1], str) else None
            if name is None or self._needles.name_of(old) is not None:
                return self._text(old)
        else:
            name = self._needles.name_of_number(old)
        return (placeholder(name), (name,)) if name else (old, ())

    def _is_private(self, path: Sequence[str | int]) -> bool:
        return any(tuple(path[:size]) in self._private for size in self._private_sizes)

    # ── texts ──

    def text(self, text: str) -> RedactedText:
        """Redact a plain text."""
        new, names = self._text(text)
        return RedactedText(text=new, names=names)

    def broken_off(self, text: str) -> RedactedText:
        """Redact a text that was cut at its end. A tail that may be the beginning of a secret is removed."""
        masked, _ = Masker(self._needles).feed("", text)
        redacted = self.text(masked.text)
        return RedactedText(text=redacted.text, names=tuple(dict.fromkeys(masked.names + redacted.names)))

    def _text(self, text: str) -> tuple[str, tuple[str, ...]]:
        if len(text) < MIN_SECRET_CHARS or not self._prefilter.may_hold(to_bytes(text)):
            return text, ()
        masked = self._masker.mask(text)
        return masked.text, masked.names

    def finish(self, key: str) -> RedactedText | None:
        """End a text stream and return what was held back of it, masked if it reveals too much of a secret.

        None if nothing was held back.
        """
        rest = self._masker.finish(key)
        return None if rest is None else RedactedText(text=rest.text, names=rest.names)

    def open_streams(self) -> tuple[str, ...]:
        """Return the keys of the streams that are not finished."""
        return self._masker.open_streams()

    # ── values ──

    def encoded(self, value: msgspec.Struct) -> bytes:
        """Return the JSON of a struct without secrets. A struct without secrets is encoded once."""
        try:
            data = _encode(value)
        except (TypeError, ValueError):  # JSON cannot express one of its values
            return _encode(self._by_leaf(value))
        return _encode(self._by_leaf(value)) if self._prefilter.may_hold(data) else data

    def value(self, value: Any) -> Any:
        """Redact the strings, numbers and keys of a JSON-like value or struct. What has no secret is returned as is."""
        return self._value(value, key=None)

    def _value(self, value: Any, *, key: str | None) -> Any:
        match value:
            case dict():
                return {self._value(name, key=None): self._value(item, key=str(name)) for name, item in value.items()}
            case list():
                return [self._value(item, key=None) for item in value]
            case tuple():
                return tuple(self._value(item, key=None) for item in value)
            case msgspec.Struct():
                return value if self._is_clean(value) else self._by_leaf(value)
            case str():
                new, names = self._leaf(value, path=() if key is None else (key,), is_string=True)
                return new if names else value
            case bool() | None | msgspec.UNSET:
                return value
            case int() | float():
                new, names = self._leaf(_number_text(value), path=(), is_string=False)
                return new if names else value
            case _:
                raise TypeError(f"cannot redact a value of type {type(value).__name__}")

    def _by_leaf(self, value: msgspec.Struct) -> msgspec.Struct:
        fields = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        clean = {name: self._value(getattr(value, name), key=spelled) for name, spelled in fields}
        return msgspec.structs.replace(value, **clean)

    def _is_clean(self, value: msgspec.Struct) -> bool:
        """Whether the prefilter finds nothing in the JSON of a struct."""
        try:
            return not self._prefilter.may_hold(_encode(value))
        except (TypeError, ValueError):  # JSON cannot express one of its values, so it is redacted leaf by leaf
            return False


def _number_text(number: float) -> str:
    try:
        return repr(number)
    except ValueError:  # Python refuses to format integers of more than 4,300 digits
        return ""


def _unquoted(string: str) -> str:
    return str(_unquote(string)) if "\\" in string else string[1:-1]


def _leaf(raw: bytes, *, path: Path) -> str | None:
    """Return the string at a path; None if there is no string or the line cannot be decoded."""
    try:
        value = _decode(raw)
        for step in path:
            value = value[step]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        return None
    return value if isinstance(value, str) else None


def _sole_value(text: str, *, path: Path) -> re.Match[str] | None:
    """Find the leaf at a path that is known to exist, without a walk. None unless its key occurs once in the JSON."""
    spelling = _quote(path[-1]) if path and isinstance(path[-1], str) else ""
    if not spelling or text.count(spelling) != 1:
        return None
    return _PART.search(text, text.index(spelling) + len(spelling))


def _leaves(text: str) -> Iterator[tuple[re.Match[str], Sequence[str | int]]]:
    """Yield keys, strings and scalars of valid JSON in order, each with its path. A key has the path of its value."""
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


def _leaves_at(
    hits: Sequence[tuple[int, int]], *, raw: bytes, text: str
) -> Iterator[tuple[re.Match[str], Sequence[str | int]]]:
    """Yield the leaves of valid JSON that are at hits, and some beside them. Of their paths only their own key."""
    waiting = iter(hits)
    hit = next(waiting, None)
    reach = done = chars = 0
    for stretch in _STRETCH.finditer(raw):
        start, end = stretch.span()
        while hit is not None and hit[0] < end:
            reach = max(reach, hit[1])
            hit = next(waiting, None)
        if start < reach:
            chars += len(raw[done:start].decode())
            done = start
            yield from _leaves_with_keys(text, chars, chars + len(stretch[0].decode()))


def _leaves_with_keys(text: str, start: int, end: int) -> Iterator[tuple[re.Match[str], Sequence[str | int]]]:
    path: tuple[str, ...] = ()
    for part in _PART.finditer(text, start, end):
        string, colon = part.groups()
        if colon:
            path = (_unquoted(string),)
        if string is not None or part[0] not in "{}[],":
            yield part, path
        if not colon:
            path = ()
