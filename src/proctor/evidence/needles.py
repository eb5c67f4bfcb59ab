"""Finds known secrets in a text, in every spelling in which they may occur."""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from proctor.evidence.escapes import DecodedText, Origins, cut_at, decode_escapes, origin_of
from proctor.evidence.secrets import Secret
from proctor.evidence.spellings import base64_forms, case_forms, escape, text_forms
from proctor.spec.literal import MIN_SECRET_CHARS

Place = tuple[int, int, str]
"""Start and end of a secret in a text, and the name that replaces it."""

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
_DIGITS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_LAST_BREAK: Final = re.compile(r"(?:[\r\n]|\\{1,3}[rn]?)+[ \t]*[+-]?\Z")


def fold(text: str) -> str:
    """Return a text with its ASCII letters in lower case. Its length stays the same.

    >>> fold("Zk7-ÄÖ")
    'zk7-ÄÖ'
    """
    return (
        text.lower()
        if text.isascii()
        else text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
    )


class NeedlePrefixes:
    """Finds where the end of a text may be the beginning of a needle. The case of `folded` needles does not matter.

    >>> NeedlePrefixes(["abcdefgh"]).at("see abcde"), NeedlePrefixes(["abcdefgh"]).at("see abcdX")
    (4, 9)
    >>> NeedlePrefixes(["abcdefgh"]).at("see ABCDE"), NeedlePrefixes([], folded=["abcdefgh"]).at("see ABCDE")
    (9, 4)
    """

    def __init__(self, needles: Iterable[str], *, folded: Iterable[str] = ()) -> None:
        self._exact, self._folded = sorted(needles), sorted(folded)
        # Possible lengths of a prefix that ends in these characters.
        sizes: dict[str, set[int]] = {}
        for needle in (*self._exact, *self._folded):
            for size in range(GRAM_CHARS, len(needle)):
                sizes.setdefault(needle[size - GRAM_CHARS : size].lower(), set()).add(size)
        self._sizes = {gram: sorted(found, reverse=True) for gram, found in sizes.items()}
        self._short = {needle[:size] for needle in self._exact for size in range(1, GRAM_CHARS)}
        self._short |= {case for needle in self._folded for case in _cases(needle[: GRAM_CHARS - 1])}

    def at(self, text: str, *, start: int = 0) -> int:
        """Return where the longest tail begins that may continue as a needle, or the length of the text."""
        end = len(text)
        for size in self._sizes.get(text[-GRAM_CHARS:].lower(), ()):
            if end - size >= start and self.first(text[end - size :], is_part=True) is not None:
                return end - size
        for at in range(max(start, end - GRAM_CHARS + 1), end):
            if text[at:] in self._short:
                return at
        return end

    def first(self, tail: str, *, is_part: bool = False) -> str | None:
        """Return the needle that a tail begins, or None.

        It is the tail itself if that is a needle and not `is_part`, else the first in sort order.
        """
        find = bisect_right if is_part else bisect_left
        for needles, text in ((self._exact, tail), (self._folded, fold(tail))):
            at = find(needles, text)
            if at < len(needles) and needles[at].startswith(text):
                return needles[at]
        return None


def _cases(text: str) -> Iterator[str]:
    """Yield the beginnings of a text with its ASCII letters in either case."""
    cases = [""]
    for char in text:
        cases = [f"{case}{one}" for case in cases for one in {char, char.upper() if char.isascii() else char}]
        yield from cases


class Needles:
    """All forms of all secrets."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        folded: dict[str, str] = {}
        exact: dict[str, str] = {}
        self._coded: dict[str, str] = {}
        for secret in secrets:
            if secret.is_case_sensitive:
                exact |= {form: secret.name for form in text_forms(secret.value) if form not in exact}
            else:
                spellings = map(fold, (*text_forms(secret.value), *case_forms(secret.value)))
                folded |= {form: secret.name for form in spellings if form not in folded}
            for form in base64_forms(secret.value.encode("utf-8", "surrogateescape")):
                self._coded.setdefault(form, secret.name)
        exact |= {form: name for form, name in self._coded.items() if form not in exact}
        self._names = {**folded, **exact}
        self._folded, self._exact = folded, exact
        self._by_gram: dict[str, list[tuple[str, bool, str]]] = {}
        for needles in (folded, exact):
            for needle, name in needles.items():
                known = self._by_gram.setdefault(needle[:GRAM_CHARS].lower(), [])
                known.append((needle, needles is folded, name))
        self._numbers = {number: each.name for each in secrets if (number := _number(each.value)) is not None}
        self._prefixes = NeedlePrefixes(exact, folded=folded)
        self._coded_prefixes = NeedlePrefixes(self._coded)
        self.open_at = self._prefixes.at

    @property
    def folded_spellings(self) -> frozenset[str]:
        """The needles whose case does not matter, as they occur in decoded texts and in undecoded JSON."""
        return _with_escaped(self._folded)

    @property
    def exact_spellings(self) -> frozenset[str]:
        """The needles whose case matters, as they occur in decoded texts and in undecoded JSON."""
        return _with_escaped(self._exact)

    @property
    def number_patterns(self) -> frozenset[str]:
        """Patterns of the JSON numbers that are secrets, however they are written."""
        return frozenset(map(_number_pattern, self._numbers))

    def name_of(self, text: str) -> str | None:
        """Return the name of the secret that is exactly this text; None if no secret is."""
        return self._exact.get(text) or self._folded.get(fold(text))

    def name_of_number(self, number: str) -> str | None:
        """Return the name of the secret that a JSON number is, however it is written; None if no secret is.

        >>> needles = Needles([Secret(name="PIN", value="12345678")])
        >>> [needles.name_of_number(number) for number in ("12345678", "-1.2345678E+7", "1234567")]
        ['PIN', 'PIN', None]
        """
        digits = number.lstrip("-")
        name = self.name_of(digits)
        return self._numbers.get(float(digits)) if name is None and self._numbers and digits[:1].isdigit() else name

    def name_of_start(self, tail: str) -> str:
        """Return the name of the secret that a tail begins, found by one of the `…open_at`."""
        unbroken = _LAST_BREAK.sub("", tail)
        spellings = (tail, *(breaks.sub("", unbroken) for breaks in _BREAKS), _decode_uncut(tail).text)
        return next(
            self._names[needle] for spelling in spellings if (needle := self._prefixes.first(spelling)) is not None
        )

    def places(self, text: str, *, start: int = 0, end: int) -> Iterator[Place]:
        """Yield every needle that starts in this range, in any order, overlapping ones included."""
        if end - start < len(self._names):
            for at in range(start, end):
                for needle, is_folded, name in self._by_gram.get(text[at : at + GRAM_CHARS].lower(), ()):
                    stop = at + len(needle)
                    if (fold(text[at:stop]) if is_folded else text[at:stop]) == needle:
                        yield at, stop, name
            return
        for needles, in_text in ((self._folded, fold(text)), (self._exact, text)):
            for needle, name in needles.items():
                at = in_text.find(needle, start)
                while 0 <= at < end:
                    yield at, at + len(needle), name
                    at = in_text.find(needle, at + 1)

    def escaped_places(self, text: str, *, start: int = 0, end: int) -> Iterator[Place]:
        """Yield every needle that starts in this range and is spelled with unusual escapes."""
        decoded = decode_escapes(text[start:])
        if len(decoded.text) < len(text) - start:
            for first, last, name in self.places(decoded.text, end=len(decoded.text)):
                if (at := start + decoded.origin(first)) < end:
                    yield at, start + decoded.origin(last), name

    def escaped_open_at(self, text: str, *, start: int = 0) -> int:
        """Return where the first tail begins that may continue as a needle with unusual escapes, or the length."""
        decoded = _decode_uncut(text[start:])
        at = self._prefixes.at(decoded.text)
        return start + decoded.origin(at) if at < len(decoded.text) else len(text)

    def wrapped_places(self, text: str, *, start: int = 0, end: int) -> Iterator[Place]:
        """Yield every base64 needle that starts in this range and continues in the next line."""
        for breaks in _BREAKS:
            joined, origins = _join_lines(text, breaks)
            if len(joined) == len(text):
                continue
            for needle, name in self._coded.items():
                at = joined.find(needle)
                while at >= 0:
                    if start <= (first := origin_of(at, origins)) < end:
                        yield first, origin_of(at + len(needle) - 1, origins) + 1, name
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
                if at < len(joined) and start <= (origin := origin_of(at, origins)):
                    first = min(first, origin)
        return first


def is_wrapped(text: str) -> bool:
    """Whether the text contains the end of a long base64-like line, which may continue in the next one."""
    return _WRAPPED.search(text) is not None


def may_continue(line: bytes) -> bool:
    """Whether base64 or a private key may continue in the line after this one."""
    return _KEY_BEGINS.search(line) is not None or is_wrapped(f"{line[-LINE_CHARS - 1 :].decode('latin-1')}\n")


def _join_lines(text: str, breaks: re.Pattern[str]) -> tuple[str, Origins]:
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


def _with_escaped(needles: Iterable[str]) -> frozenset[str]:
    return frozenset(spelling for needle in needles for spelling in (needle, escape(needle)))


def _decode_uncut(text: str) -> DecodedText:
    """Decode the escapes of a text, without one that is cut off at its end."""
    return decode_escapes(text[: cut_at(text)])


def _number(value: str) -> float | None:
    """Return a secret that is a number of `MIN_SECRET_CHARS` digits or more, leading zeros not counted; else None."""
    if _DIGITS.fullmatch(value) is None or len(value.lstrip("0.").replace(".", "")) < MIN_SECRET_CHARS:
        return None
    return float(value) if float(value) < math.inf else None


def _number_pattern(number: float) -> str:
    """Return a pattern of the first digits of a number, which has an exponent if they are few."""
    digits = f"{number:.14e}".partition("e")[0].replace(".", "").rstrip("0")
    return r"\.?".join(digits[:12]) + ("" if len(digits) >= MIN_SECRET_CHARS else "[0.]*[Ee]")
