"""Finds known secrets in a text, in every spelling in which they may occur."""

import json
import re
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final
from urllib.parse import quote, quote_plus

from proctor.evidence.secrets import Secret
from proctor.spec.literal import MIN_SECRET_CHARS

Place = tuple[int, int, str]
"""Start and end of a secret in a text, and the name that replaces it."""

_Origins = list[tuple[int, int]]
"""Start of each piece of a joined text: its offset there, and its offset in the original. In order."""

_ESCAPED = json.JSONEncoder(ensure_ascii=False).encode
_ESCAPED_ASCII = json.JSONEncoder().encode

GRAM_CHARS: Final = 4
"""Number of characters of a needle that are looked up in a table, which is faster than a search."""

# Base64 is wrapped at 64 or 76 columns. The end of a shorter line is not taken for a wrap.
LINE_CHARS: Final = 40
LINE_END: Final = r"(?:[\r\n]|\\{1,3}[rn])"
_LINE: Final = rf"[A-Za-z0-9+/_-]{{{LINE_CHARS}}}"
# Matches the line end first, because few texts have one, and few of those have such a line before it.
_WRAPPED: Final = re.compile(rf"[\r\n\\](?<={_LINE}[\r\n\\])")
# A backslash before a line end and the indentation of the next line are layout, not base64.
_BREAK: Final = rf"(?:{LINE_END}|\\(?=[\r\n]))+[ \t]*"
# The second kind of break includes the mark of a diff, which is not part of the base64, although `+` could be.
_BREAKS: Final = tuple(re.compile(f"{_BREAK}{mark}") for mark in ("", "[+-]"))
_KEY_BEGINS: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,24}PRIVATE KEY-----\s*\Z")
_LAST_BREAK: Final = re.compile(r"(?:[\r\n]|\\{1,3}[rn]?)+[ \t]*[+-]?\Z")


def escape(text: str) -> str:
    """Return the text as it is written between the quotes of a JSON string.

    >>> escape('say "hi"')
    'say \\\\"hi\\\\"'
    """
    return _ESCAPED(text)[1:-1]


def forms(value: str) -> Iterator[str]:
    """Yield every spelling of a secret that is searched for. To add a form, add a `yield`."""
    # A diff or a stream read by line never contains a secret of several lines in one piece.
    for plain in (value, *(line.strip() for line in value.splitlines())):
        if len(plain) >= MIN_SECRET_CHARS:
            once = (escape(plain), escape(plain).replace("/", "\\/"), _ESCAPED_ASCII(plain)[1:-1])
            yield from (plain, *once, *map(escape, once))
            # Quoted for a shell: escaped in double quotes, or with `'` written in one of two ways in single quotes.
            yield re.sub(r"[\"$`\\]", r"\\\g<0>", plain)
            yield from (plain.replace("'", "'\\''"), plain.replace("'", "'\"'\"'"))
    data = value.encode("utf-8", "surrogateescape")
    # The characters left unescaped differ: RFC 3986, paths, JavaScript's encodeURIComponent, HTML forms.
    for url in (quote(data, safe=""), quote(data, safe="/"), quote(data, safe="!~*'()"), quote_plus(data)):
        yield url
        yield re.sub("%..", lambda code: code[0].lower(), url)
    for coded in base64_forms(data):
        yield coded
        yield coded.replace("/", "\\/")


def base64_forms(data: bytes) -> Iterator[str]:
    """Yield the part common to all base64 texts with these bytes at an offset of 0, 1 or 2, in both alphabets."""
    for offset in range(3):
        coded = b64encode(bytes(offset) + data).decode()
        # The first and last character may also contain bits of the neighbouring bytes.
        common = coded[(offset * 8 + 5) // 6 : (offset + len(data)) * 8 // 6]
        for known in (coded, common) if offset == 0 else (common,):
            yield known
            yield known.replace("+", "-").replace("/", "_")


class NeedlePrefixes:
    """Finds where the end of a text may be the beginning of a needle.

    >>> NeedlePrefixes(["abcdefgh"]).at("see abcde"), NeedlePrefixes(["abcdefgh"]).at("see abcdX")
    (4, 9)
    """

    def __init__(self, needles: Iterable[str]) -> None:
        self._sorted = sorted(needles)
        # Possible lengths of a prefix that ends in these characters.
        sizes: dict[str, set[int]] = {}
        for needle in self._sorted:
            for size in range(GRAM_CHARS, len(needle)):
                sizes.setdefault(needle[size - GRAM_CHARS : size], set()).add(size)
        self._sizes = {gram: sorted(found, reverse=True) for gram, found in sizes.items()}
        self._short = {needle[:size] for needle in self._sorted for size in range(1, GRAM_CHARS)}

    def at(self, text: str, *, start: int = 0) -> int:
        """Return where the longest tail begins that may continue as a needle, or the length of the text."""
        end = len(text)
        for size in self._sizes.get(text[-GRAM_CHARS:], ()):
            if end - size >= start and self._is_prefix(text[end - size :]):
                return end - size
        for at in range(max(start, end - GRAM_CHARS + 1), end):
            if text[at:] in self._short:
                return at
        return end

    def _is_prefix(self, tail: str) -> bool:
        after = bisect_right(self._sorted, tail)
        return after < len(self._sorted) and self._sorted[after].startswith(tail)

    def first(self, tail: str) -> str | None:
        """Return the needle that a tail begins: the tail itself if it is a needle, else the first in sort order."""
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
            for form in base64_forms(secret.value.encode("utf-8", "surrogateescape")):
                self._coded.setdefault(form, secret.name)
        self._by_gram: dict[str, list[str]] = {}
        for needle in self._names:
            self._by_gram.setdefault(needle[:GRAM_CHARS], []).append(needle)
        self._prefixes = NeedlePrefixes(self._names)
        self._coded_prefixes = NeedlePrefixes(self._coded)
        self.open_at = self._prefixes.at

    @property
    def spellings(self) -> frozenset[str]:
        """All needles as they occur in decoded texts and in undecoded JSON."""
        return frozenset(self._names) | {escape(needle) for needle in self._names}

    def name_of(self, text: str) -> str | None:
        """Return the name of the secret that is exactly this text; None if no secret is."""
        return self._names.get(text)

    def name_of_start(self, tail: str) -> str:
        """Return the name of the secret that a tail, found by `open_at` or `wrapped_open_at`, begins."""
        unbroken = _LAST_BREAK.sub("", tail)
        spellings = (tail, *(breaks.sub("", unbroken) for breaks in _BREAKS))
        return next(
            self._names[needle] for spelling in spellings if (needle := self._prefixes.first(spelling)) is not None
        )

    def places(self, text: str, *, start: int = 0, end: int) -> Iterator[Place]:
        """Yield every needle that starts in this range, in any order, overlapping ones included."""
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
        """Yield every base64 needle that starts in this range and continues in the next line."""
        for breaks in _BREAKS:
            joined, origins = _join_lines(text, breaks)
            if len(joined) == len(text):
                continue
            for needle, name in self._coded.items():
                at = joined.find(needle)
                while at >= 0:
                    if start <= (first := _origin(at, origins)) < end:
                        yield first, _origin(at + len(needle) - 1, origins) + 1, name
                    at = joined.find(needle, at + 1)

    def wrapped_open_at(self, text: str, *, start: int = 0) -> int:
        """Return where the first tail begins that may continue as base64 in the next line, or the text's length."""
        last = _LAST_BREAK.search(text)
        unbroken = text[: last.start()] if last is not None and _WRAPPED.match(text, last.start()) else text
        first = len(text)
        for breaks in _BREAKS:
            joined, origins = _join_lines(unbroken, breaks)
            if len(joined) < len(text):
                at = self._coded_prefixes.at(joined)
                if at < len(joined) and start <= (origin := _origin(at, origins)):
                    first = min(first, origin)
        return first


def is_wrapped(text: str) -> bool:
    """Whether the text contains the end of a long base64-like line, which may continue in the next one."""
    return ("\n" in text or "\\" in text or "\r" in text) and _WRAPPED.search(text) is not None


def may_continue(line: bytes) -> bool:
    """Whether base64 or a private key may continue in the line after this one."""
    return _KEY_BEGINS.search(line) is not None or is_wrapped(f"{line[-LINE_CHARS - 1 :].decode('latin-1')}\n")


def _join_lines(text: str, breaks: re.Pattern[str]) -> tuple[str, _Origins]:
    """Return the text without these line breaks, and the origin of each piece."""
    pieces: list[str] = []
    origins, done, size = [(0, 0)], 0, 0
    for wrapped in _WRAPPED.finditer(text):
        if (line_break := breaks.match(text, wrapped.start())) is None:
            continue
        pieces.append(text[done : line_break.start()])
        size += len(pieces[-1])
        done = line_break.end()
        origins.append((size, done))
    pieces.append(text[done:])
    return "".join(pieces), origins


def _origin(at: int, origins: _Origins) -> int:
    start, origin = origins[bisect_right(origins, at, key=itemgetter(0)) - 1]
    return origin + at - start
