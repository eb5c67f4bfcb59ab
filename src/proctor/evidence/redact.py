"""The filter every byte passes on its way to the disk: secrets out, everything else as it was."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

import msgspec

from proctor.evidence import scan
from proctor.evidence.mask import Masker, placeholder
from proctor.evidence.needles import Needles, escape
from proctor.evidence.prefilter import Prefilter, in_bytes
from proctor.evidence.secrets import Secret
from proctor.spec.literal import LEAST_CHARS

ACCOUNT = "account"
"""The name in the place of account data."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.encode
_check = msgspec.json.Decoder(msgspec.Raw).decode
_quote = encode_basestring
_unquote = json.JSONDecoder().decode

# The parts of valid JSON: a string, with the colon that makes it a key; a bracket or comma; a number or literal.
_PART = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")(\s*:)?|[{}\[\],]|[^\s"{}\[\],:]+')

# `\u0073` or a surrogate pair, but no lone surrogate; and as YAML and many languages write it, `\x73`, `\U00000073`.
_ESCAPE = re.compile(
    r"\\u(?:[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|(?![Dd][89A-Fa-f])[0-9A-Fa-f]{4})"
    r"|\\x[0-9A-Fa-f]{2}|\\U000[01][0-9A-Fa-f]{4}"
)

Path = tuple[str | int, ...]


# Structs, not dataclasses: some are made for every frame, in a seventh of the time.
class TextStream(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Says that one leaf of a frame is a piece of a streamed text."""

    key: str
    path: Path


class RedactedLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`carried`: text of the frame's stream was moved out of it to a later frame, or into it from an earlier one."""

    raw: bytes
    names: tuple[str, ...] = ()
    carried: bool = False


class RedactedText(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    text: str
    names: tuple[str, ...] = ()


class _Known:
    """Lines that were rewritten before: every attempt of a run states the same facts, its canary among them."""

    _MOST_LINES = 64
    _MOST_BYTES = 16 * 1024

    def __init__(self) -> None:
        self._lines: dict[bytes, RedactedLine] = {}
        self.get = self._lines.get

    def keep(self, raw: bytes, line: RedactedLine) -> RedactedLine:
        if len(raw) <= self._MOST_BYTES:
            if len(self._lines) >= self._MOST_LINES:
                self._lines.clear()
            self._lines[raw] = line
        return line


@lru_cache(maxsize=4)
def _prepared(secrets: tuple[Secret, ...], private: frozenset[tuple[str, ...]]) -> tuple[Needles, Prefilter, _Known]:
    """What takes long to make and never changes, once for all attempts of a run."""
    needles = Needles(secrets)
    return needles, Prefilter(needles, keys={path[-1] for path in private}), _Known()


class Redactor:
    r"""Takes secrets out of JSON lines, texts, values and text streams.

    JSON is changed leaf by leaf and key by key, each decoded first; all bytes around a changed leaf stay as they were.
    `private` are the paths in frames under which everything is account data.

    >>> redactor = Redactor([Secret(name="API_KEY", value="sk-live-0123")])
    >>> redactor.line(rb'{"id": 1, "result": {"out": "key: \u0073k-live-0123"}}').raw
    b'{"id": 1, "result": {"out": "key: [redacted:API_KEY]"}}'
    >>> said = TextStream(key="thread/item/text", path=("delta",))
    >>> [redactor.line(raw, stream=said).raw for raw in (b'{"delta":"my sk-li"}', b'{"delta":"ve-0123"}')]
    [b'{"delta":"my "}', b'{"delta":"[redacted:API_KEY]"}']
    """

    def __init__(self, secrets: Sequence[Secret], *, private: frozenset[tuple[str, ...]] = frozenset()) -> None:
        self._needles, self._prefilter, self._known = _prepared(tuple(secrets), private)
        self._private = private
        self._private_sizes = sorted({len(path) for path in private})
        self._masker = Masker(self._needles)

    # ── JSON lines ──

    def lines(self, batch: Sequence[tuple[bytes, TextStream | None]]) -> list[RedactedLine]:
        """Many lines at the price of one look, as long as there is nothing in them."""
        is_clean = len(batch) > 1 and not self._prefilter.may_hold(b"\n".join([raw for raw, _ in batch]))
        return [
            RedactedLine(raw=raw) if is_clean and stream is None else self.line(raw, stream=stream, is_clean=is_clean)
            for raw, stream in batch
        ]

    def line(self, raw: bytes, *, stream: TextStream | None = None, is_clean: bool = False) -> RedactedLine:
        """One JSON value, or whatever bytes came in place of one. `is_clean` says that it has been looked at."""
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
        elif stream is None and (known := self._known.get(raw)) is not None:
            return known
        try:
            text = raw.decode()
            _check(raw)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
            return self._garbled(raw)
        rewritten = self._rewritten(raw, text=text, leaves=_leaves(text), stream=stream)
        # With a stream it hangs on what was said before; without one on the line alone.
        return rewritten if stream is not None else self._known.keep(raw, rewritten)

    def _garbled(self, raw: bytes) -> RedactedLine:
        redacted = self.text(raw.decode(errors="surrogateescape"))
        if not redacted.names:
            return RedactedLine(raw=raw)
        return RedactedLine(raw=redacted.text.encode(errors="surrogateescape"), names=redacted.names)

    def _rewritten(
        self,
        raw: bytes,
        *,
        text: str,
        leaves: Iterable[tuple[re.Match[str], Sequence[str | int]]],
        stream: TextStream | None,
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
                masked, is_moved = self._masker.feed(stream.key, old)
                new, found = masked.text, masked.names
                carried = carried or is_moved
            elif colon:
                new, found = self._text(old)
            else:
                new, found = self._leaf(old, path=path, is_string=string is not None)
            if new != old:
                pieces += text[done : part.start()], _quote(new)
                done = part.end(1) if string else part.end()
                names.update(dict.fromkeys(found))
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
            name = self._needles.name_of(old.lstrip("-"))
        return (placeholder(name), (name,)) if name else (old, ())

    def _is_private(self, path: Sequence[str | int]) -> bool:
        return any(tuple(path[:size]) in self._private for size in self._private_sizes)

    # ── texts ──

    def text(self, text: str) -> RedactedText:
        """Plain text. Where it holds JSON, whole or broken, odd escapes are undone if that uncovers a secret."""
        new, names = self._text(text)
        return RedactedText(text=new, names=names)

    def broken_off(self, text: str) -> RedactedText:
        """A text that was cut at its end: what may be the beginning of something secret there is left out."""
        whole, _ = Masker(self._needles).feed("", text)
        redacted = self.text(whole.text)
        return RedactedText(text=redacted.text, names=tuple(dict.fromkeys(whole.names + redacted.names)))

    def _text(self, text: str) -> tuple[str, tuple[str, ...]]:
        if len(text) < LEAST_CHARS or not self._prefilter.may_hold(in_bytes(text)):
            return text, ()
        masked = self._masker.whole(text)
        names = masked.names
        if "\\u" in masked.text or "\\x" in masked.text or "\\U" in masked.text:
            uncovered = self._masker.whole(_ESCAPE.sub(_usual, masked.text))
            if uncovered.names:
                masked, names = uncovered, tuple(dict.fromkeys(names + uncovered.names))
        return masked.text, names

    def finish(self, key: str) -> RedactedText | None:
        """Ends a text stream and gives out what was held back of it, masked if it tells too much of a secret."""
        rest = self._masker.finish(key)
        return None if rest is None else RedactedText(text=rest.text, names=rest.names)

    def open_streams(self) -> tuple[str, ...]:
        """The keys of the streams that have not been finished."""
        return self._masker.open_streams()

    # ── values ──

    def encoded(self, value: msgspec.Struct) -> bytes:
        """The JSON of it without what is secret, spelled once where nothing is."""
        try:
            data = _encode(value)
        except (TypeError, ValueError):  # it holds what JSON cannot spell
            return _encode(self._by_leaf(value))
        return _encode(self._by_leaf(value)) if self._prefilter.may_hold(data) else data

    def value(self, value: Any) -> Any:
        """Any JSON-like value, structs among them: its strings, numbers and keys. What is clean stays as it is."""
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
                new, names = self._leaf(_spelled(value), path=(), is_string=False)
                return new if names else value
            case _:
                raise TypeError(f"cannot redact a value of type {type(value).__name__}")

    def _by_leaf(self, value: msgspec.Struct) -> msgspec.Struct:
        fields = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        clean = {name: self._value(getattr(value, name), key=spelled) for name, spelled in fields}
        return msgspec.structs.replace(value, **clean)

    def _is_clean(self, value: msgspec.Struct) -> bool:
        """Whether one look at the JSON of it is enough to know that nothing in it must be changed."""
        try:
            return not self._prefilter.may_hold(_encode(value))
        except (TypeError, ValueError):  # it holds what JSON cannot spell: leaf by leaf, then
            return False


def _spelled(number: float) -> str:
    try:
        return repr(number)
    except ValueError:  # Python does not spell integers of more than 4,300 digits
        return ""


def _unquoted(string: str) -> str:
    return str(_unquote(string)) if "\\" in string else string[1:-1]


def _usual(escaped: re.Match[str]) -> str:
    """The usual spelling of an escaped character, which is still an escape if the character needs one."""
    code = escaped[0]
    return escape(_unquoted(f'"{code}"') if code[1] == "u" else chr(int(f"0x{code[2:]}", 0)))


def _leaf(raw: bytes, *, path: Path) -> str | None:
    """The string at a path; nothing if there is none, or if this decoder cannot say."""
    try:
        value = _decode(raw)
        for step in path:
            value = value[step]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        return None
    return value if isinstance(value, str) else None


def _sole_value(text: str, *, path: Path) -> re.Match[str] | None:
    """The leaf at a path that surely leads to one, found without a walk if its key is spelled only once in the JSON."""
    spelling = _quote(path[-1]) if path and isinstance(path[-1], str) else ""
    if not spelling or text.count(spelling) != 1:
        return None
    return _PART.search(text, text.index(spelling) + len(spelling))


def _leaves(text: str) -> Iterator[tuple[re.Match[str], Sequence[str | int]]]:
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
