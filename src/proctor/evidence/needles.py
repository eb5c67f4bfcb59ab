"""The spellings in which known secrets are looked for in a text, and every place where one stands."""

import json
import re
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final
from urllib.parse import quote, quote_plus

from proctor.evidence.secrets import Secret
from proctor.spec.literal import LEAST_CHARS

Place = tuple[int, int, str]
"""Where something secret starts and ends, and the name that stands there instead."""

_Origins = list[tuple[int, int]]
"""Where each piece of a text starts, in it and in the text it was taken from; in order."""

_ESCAPED = json.JSONEncoder(ensure_ascii=False).encode
_ESCAPED_ASCII = json.JSONEncoder().encode

# So many characters of a needle are looked up in a table, which is quicker than any search.
GRAM_CHARS: Final = 4

# Base64 is wrapped at 64 or 76 columns; a shorter line that ends is only a line that ends.
LINE_CHARS: Final = 40
LINE_END: Final = r"(?:[\r\n]|\\{1,3}[rn])"
_LINE: Final = rf"[A-Za-z0-9+/_-]{{{LINE_CHARS}}}"
# The line's end comes first, because few texts have one, and of those few have such a line before it.
_WRAPPED: Final = re.compile(rf"[\r\n\\](?<={_LINE}[\r\n\\])")
# A backslash before a line's end, and what the next line is indented by, say only how the lines are laid out.
_BREAK: Final = rf"(?:{LINE_END}|\\(?=[\r\n]))+[ \t]*"
# The second kind of break is one with the mark of a diff, which is no part of the base64, though it may look so.
_BREAKS: Final = tuple(re.compile(f"{_BREAK}{mark}") for mark in ("", "[+-]"))
_KEY_BEGINS: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,24}PRIVATE KEY-----\s*\Z")
_LAST_BREAK: Final = re.compile(r"(?:[\r\n]|\\{1,3}[rn]?)+[ \t]*[+-]?\Z")


def escape(text: str) -> str:
    """As it stands between the quotes of a JSON string.

    >>> escape('say "hi"')
    'say \\\\"hi\\\\"'
    """
    return _ESCAPED(text)[1:-1]


def forms(value: str) -> Iterator[str]:
    """Every spelling of a secret that is looked for. A further form is a further `yield`, and nothing else."""
    # A diff, and a stream read line by line, never holds a secret of several lines in one piece.
    for plain in (value, *(line.strip() for line in value.splitlines())):
        if len(plain) >= LEAST_CHARS:
            once = (escape(plain), escape(plain).replace("/", "\\/"), _ESCAPED_ASCII(plain)[1:-1])
            yield from (plain, *once, *map(escape, once))
            # Between the quotes of a shell, where `'` ends the one kind and is put back in one of two ways.
            yield re.sub(r"[\"$`\\]", r"\\\g<0>", plain)
            yield from (plain.replace("'", "'\\''"), plain.replace("'", "'\"'\"'"))
    data = value.encode("utf-8", "surrogateescape")
    # What is left as it is differs: RFC 3986, paths, JavaScript's encodeURIComponent, HTML forms.
    for url in (quote(data, safe=""), quote(data, safe="/"), quote(data, safe="!~*'()"), quote_plus(data)):
        yield url
        yield re.sub("%..", lambda code: code[0].lower(), url)
    for coded in in_base64(data):
        yield coded
        yield coded.replace("/", "\\/")


def in_base64(data: bytes) -> Iterator[str]:
    """What all base64 texts have in common that hold these bytes at an offset of 0, 1 or 2, in both alphabets."""
    for offset in range(3):
        coded = b64encode(bytes(offset) + data).decode()
        # At either end a character may also hold bits of what stands beside the secret.
        common = coded[(offset * 8 + 5) // 6 : (offset + len(data)) * 8 // 6]
        for known in (coded, common) if offset == 0 else (common,):
            yield known
            yield known.replace("+", "-").replace("/", "_")


class Openings:
    """Where a text may break off inside a needle.

    >>> Openings(["abcdefgh"]).at("see abcde"), Openings(["abcdefgh"]).at("see abcdX")
    (4, 9)
    """

    def __init__(self, needles: Iterable[str]) -> None:
        self._sorted = sorted(needles)
        # How long a beginning can be that ends in these characters.
        sizes: dict[str, set[int]] = {}
        for needle in self._sorted:
            for size in range(GRAM_CHARS, len(needle)):
                sizes.setdefault(needle[size - GRAM_CHARS : size], set()).add(size)
        self._sizes = {gram: sorted(found, reverse=True) for gram, found in sizes.items()}
        self._short = {needle[:size] for needle in self._sorted for size in range(1, GRAM_CHARS)}

    def at(self, text: str, *, start: int = 0) -> int:
        """Where the longest tail begins that the next piece of text may make a needle of; the text's end if none."""
        end = len(text)
        for size in self._sizes.get(text[-GRAM_CHARS:], ()):
            if end - size >= start and self._is_beginning(text[end - size :]):
                return end - size
        for at in range(max(start, end - GRAM_CHARS + 1), end):
            if text[at:] in self._short:
                return at
        return end

    def _is_beginning(self, tail: str) -> bool:
        after = bisect_right(self._sorted, tail)
        return after < len(self._sorted) and self._sorted[after].startswith(tail)

    def first(self, tail: str) -> str | None:
        """The needle that a tail begins: the tail itself if it is one, else the first in the alphabet."""
        at = bisect_left(self._sorted, tail)
        return self._sorted[at] if at < len(self._sorted) and self._sorted[at].startswith(tail) else None


class Needles:
    """All forms of all secrets."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._names: dict[str, str] = {}
        self._coded: dict[str, str] = {}
        for secret in secrets:
            for form in forms(secret.value):
                self._names.setdefault(form, secret.name)
            for form in in_base64(secret.value.encode("utf-8", "surrogateescape")):
                self._coded.setdefault(form, secret.name)
        self._by_gram: dict[str, list[str]] = {}
        for needle in self._names:
            self._by_gram.setdefault(needle[:GRAM_CHARS], []).append(needle)
        self._openings = Openings(self._names)
        self._coded_openings = Openings(self._coded)
        self.open_at = self._openings.at

    @property
    def spellings(self) -> frozenset[str]:
        """All of them as they stand in decoded texts and in undecoded JSON."""
        return frozenset(self._names) | {escape(needle) for needle in self._names}

    def name_of(self, text: str) -> str | None:
        """The secret that this text is, as a whole."""
        return self._names.get(text)

    def name_of_start(self, tail: str) -> str:
        """The secret that an open tail begins."""
        whole = _LAST_BREAK.sub("", tail)
        ways = (tail, *(breaks.sub("", whole) for breaks in _BREAKS))
        return next(self._names[found] for way in ways if (found := self._openings.first(way)) is not None)

    def places(self, text: str, *, start: int = 0, end: int) -> Iterator[Place]:
        """Every needle that starts in this range; any order, overlaps and all."""
        if end - start < len(self._names):
            for at in range(start, end):
                for needle in self._by_gram.get(text[at : at + GRAM_CHARS], ()):
                    if text.startswith(needle, at):
                        yield at, at + len(needle), self._names[needle]
            return
        for needle, name in self._names.items():
            at = text.find(needle, start)
            while 0 <= at < end:
                yield at, at + len(needle), name
                at = text.find(needle, at + 1)

    def wrapped_places(self, text: str, *, start: int = 0, end: int) -> Iterator[Place]:
        """Every needle in base64 that starts in this range and goes on in the next line."""
        for breaks in _BREAKS:
            squeezed, origins = _squeezed(text, breaks)
            if len(squeezed) == len(text):
                continue
            for needle, name in self._coded.items():
                at = squeezed.find(needle)
                while at >= 0:
                    if start <= (first := _origin(at, origins)) < end:
                        yield first, _origin(at + len(needle) - 1, origins) + 1, name
                    at = squeezed.find(needle, at + 1)

    def wrapped_open_at(self, text: str, *, start: int = 0) -> int:
        """Where the first tail begins that may go on as base64 in the next line; the text's end if none does."""
        last = _LAST_BREAK.search(text)
        whole = text[: last.start()] if last is not None and _WRAPPED.match(text, last.start()) else text
        first = len(text)
        for breaks in _BREAKS:
            squeezed, origins = _squeezed(whole, breaks)
            if len(squeezed) < len(text):
                at = self._coded_openings.at(squeezed)
                if at < len(squeezed) and start <= (origin := _origin(at, origins)):
                    first = min(first, origin)
        return first


def is_wrapped(text: str) -> bool:
    """Whether a long line ends in this text that may go on in the next one."""
    return ("\n" in text or "\\" in text or "\r" in text) and _WRAPPED.search(text) is not None


def may_go_on(line: bytes) -> bool:
    """Whether base64, or a private key, may go on in the line after this one."""
    return _KEY_BEGINS.search(line) is not None or is_wrapped(f"{line[-LINE_CHARS - 1 :].decode('latin-1')}\n")


def _squeezed(text: str, breaks: re.Pattern[str]) -> tuple[str, _Origins]:
    """The text without these breaks, and where each piece of it comes from."""
    pieces: list[str] = []
    origins, done, size = [(0, 0)], 0, 0
    for wrapped in _WRAPPED.finditer(text):
        if (found := breaks.match(text, wrapped.start())) is None:
            continue
        pieces.append(text[done : found.start()])
        size += len(pieces[-1])
        done = found.end()
        origins.append((size, done))
    pieces.append(text[done:])
    return "".join(pieces), origins


def _origin(at: int, origins: _Origins) -> int:
    start, origin = origins[bisect_right(origins, at, key=itemgetter(0)) - 1]
    return origin + at - start
