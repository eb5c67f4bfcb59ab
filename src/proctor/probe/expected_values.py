r"""Find text that carries an expected value, also if the value is encoded, and leave it out. Pure.

A value is looked for if it has at least MIN_VALUE_CHARS characters after normalisation: a filter for `0` would leave
nothing. Normalisation removes whitespace, control characters, invisible characters and accents, and ignores case and
compatibility forms such as full-width letters. Of a long value, every piece of MIN_PIECE_CHARS characters is looked
for, and of several lines also each line.

The text is read as it is, without escapes (percent-encoding, HTML entities, and backslash escapes as in Python, JSON,
C and shells), and as base64 (any alignment, with and without padding, also url-safe) or hex. Two of these may be
nested, and a value may be split over whitespace and lines.

Out of reach: values below the minimum, pieces of long values below MIN_PIECE_CHARS, base64 whose case was changed,
other codes (base32, decimal character codes, compression, ciphers, reversed text), letters of other alphabets that look
alike, visible characters between those of the value, and statements about the value (`one less than it should be`).
"""

import binascii
import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MIN_VALUE_CHARS: Final = 4
"""The shortest value that is looked for, in characters after normalisation."""
MIN_PIECE_CHARS: Final = 24
"""Of a value that is at least this long, every piece of this length is looked for."""

_BLOCK: Final = 16
_STRIDE: Final = MIN_PIECE_CHARS - _BLOCK
_MAX_PASSES: Final = 3
_MAX_NESTED: Final = 2
_MANY: Final = 64
# Blank characters that Unicode lists as letters or symbols.
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_IGNORED: Final = frozenset({"Cc", "Cf", "Mn", "Me", "Zs", "Zl", "Zp"})
# Separates the decoded parts of a text. It is not a character, so no value contains it.
_BETWEEN: Final = "\U0010ffff"

_BYTE: Final = r"%[0-9a-fA-F]{2}|\\x[0-9a-fA-F]{2}|\\[0-3]?[0-7]{1,2}"
_UNIT: Final = r"\\u[0-9a-fA-F]{4}"
_ESCAPE: Final = re.compile(
    rf"(?P<bytes>(?:{_BYTE})+)|(?P<units>(?:{_UNIT})+)|\\u\{{(?P<braced>[0-9a-fA-F]{{1,6}})\}}"
    r"|\\U(?P<long>[0-9a-fA-F]{8})|\\N\{(?P<name>[^{}\n]{1,90})\}|\\(?P<letter>[abefnrtv])|\\(?P<plain>[^\n])"
    r"|(?P<entity>&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?)"
)
_ONE_BYTE: Final = re.compile(_BYTE)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{6,}")
_HEX: Final = re.compile(r"(?:(?:0[xX])?[0-9a-fA-F][:,;-]?){8,}")
_HEX_DIGIT: Final = re.compile(r"0[xX]|([0-9a-fA-F])")
_STANDARD: Final = str.maketrans("-_", "+/")

_Lines = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Reading:
    """A text that was decoded from another, and for each character the first and last line that it came from."""

    text: str
    lines: _Lines


class ExpectedValues:
    """The values that must not be shown to an agent."""

    def __init__(self, values: Iterable[str] = (), *, files: Iterable[bytes] = ()) -> None:
        """`files` are the contents of goldens and hidden files, of which every line is an expected value."""
        whole = {*values, *(data.decode("utf-8", "surrogateescape") for data in files)}
        needles = {
            needle
            for value in whole
            for part in {value, *value.splitlines()}
            for needle in _needles(part)
            if len(needle) >= MIN_VALUE_CHARS
        }
        self._short: dict[int, set[str]] = {}
        self._blocks: set[str] = set()
        for needle in needles:
            if len(needle) < MIN_PIECE_CHARS:
                self._short.setdefault(len(needle), set()).add(needle)
            else:
                starts = {*range(0, len(needle) - _BLOCK, _STRIDE), len(needle) - _BLOCK}
                self._blocks.update(needle[start : start + _BLOCK] for start in starts)

    def carries(self, text: str) -> bool:
        """Return whether a text carries an expected value.

        >>> values = ExpectedValues(["total 42"])
        >>> [values.carries(text) for text in ("TOTAL  42", "dG90YWwgNDI=", "total%2042", "total 41")]
        [True, True, True, False]
        """
        return bool(self._find(text))

    def leave_out(self, text: str) -> str:
        r"""Return the text without the lines that carry an expected value. States how many were left out.

        >>> ExpectedValues(["total 42"]).leave_out("first\nexpected: total 42\nlast")
        'first\n[1 line left out]\nlast'
        """
        dropped = self._find(text)
        if not dropped:
            return text
        kept: list[str] = []
        missing = 0
        for at, line in enumerate([*text.split("\n"), None]):
            if at in dropped and line is not None:
                missing += 1
                continue
            if missing:
                kept.append(f"[{missing} line{'' if missing == 1 else 's'} left out]")
                missing = 0
            if line is not None:
                kept.append(line)
        return "\n".join(kept)

    def _find(self, text: str) -> set[int]:
        """Return the numbers of the lines that carry an expected value, counted from 0."""
        if not self._short and not self._blocks:
            return set()
        found: set[int] = set()
        for reading in _readings(text):
            folded = _fold(reading)
            for start, end in self._matches(folded.text):
                spans = folded.lines[start:end]
                found.update(range(min(first for first, _ in spans), max(last for _, last in spans) + 1))
        return found

    def _matches(self, folded: str) -> Iterator[tuple[int, int]]:
        for length, needles in self._short.items():
            if len(needles) < _MANY:
                for needle in needles:
                    yield from _occurrences(needle, folded)
            else:
                yield from _windows(needles, folded, length)
        yield from _windows(self._blocks, folded, _BLOCK)


def _occurrences(needle: str, text: str) -> Iterator[tuple[int, int]]:
    start = text.find(needle)
    while start >= 0:
        yield start, start + len(needle)
        start = text.find(needle, start + 1)


def _windows(needles: set[str], text: str, length: int) -> Iterator[tuple[int, int]]:
    for start in range(len(text) - length + 1) if needles else ():
        if text[start : start + length] in needles:
            yield start, start + length


def _needles(value: str) -> Iterator[str]:
    """Yield the normalised forms of a value: as it is, and without what looks like escapes in it."""
    reading = _Reading(value, [(0, 0)] * len(value))
    for form in _unescaped(reading):
        yield _fold(form).text


# ── readings of a text ──


def _readings(text: str) -> Iterator[_Reading]:
    """Yield the text and everything that can be decoded from it."""
    lines: _Lines = []
    for at, line in enumerate(text.split("\n")):
        lines += [(at, at)] * (len(line) + 1)
    raw = _Reading(text, lines[: len(text)])
    seen: set[str] = set()
    level = [raw]
    for depth in range(_MAX_NESTED + 1):
        decoded: list[_Reading] = []
        for start in level:
            for reading in (*_unescaped(start), *_unescaped(squeezed := _squeeze(start)), *_without_plus(squeezed)):
                if reading.text in seen:
                    continue
                seen.add(reading.text)
                yield reading
                if depth < _MAX_NESTED:
                    decoded += _decoded(_squeeze(reading))
        level = decoded


def _unescaped(reading: _Reading) -> Iterator[_Reading]:
    """Yield the reading, and what remains after its escapes are replaced, once and several times."""
    yield reading
    for encoding in ("utf-8", "latin-1"):
        current = reading
        for _ in range(_MAX_PASSES):
            following = _unescape(current, encoding)
            if following is None:
                break
            yield (current := following)
        if current is reading:
            return


def _unescape(reading: _Reading, encoding: str) -> _Reading | None:
    """Return the reading with each escape replaced by its meaning; None without escapes."""
    texts: list[str] = []
    lines: _Lines = []
    end = 0
    for match in _ESCAPE.finditer(reading.text):
        texts.append(reading.text[end : match.start()])
        lines += reading.lines[end : match.start()]
        end = match.end()
        if match["bytes"] is not None:
            tokens = list(_ONE_BYTE.finditer(reading.text, match.start(), match.end()))
            data = bytes(_byte_of(token[0]) for token in tokens)
            origins = [_span(reading, token.start(), token.end()) for token in tokens]
            part = _decode_bytes(data, origins, encoding)
            texts.append(part.text)
            lines += part.lines
            continue
        text = _character_of(match)
        texts.append(text)
        lines += [_span(reading, match.start(), match.end())] * len(text)
    if not end:
        return None
    return _Reading("".join((*texts, reading.text[end:])), lines + reading.lines[end:])


def _byte_of(token: str) -> int:
    return int(token[1:], 8) & 0xFF if token[0] == "\\" and token[1] != "x" else int(token.lstrip("%\\x"), 16)


def _character_of(match: re.Match[str]) -> str:
    if (units := match["units"]) is not None:
        text = "".join(chr(int(unit, 16)) for unit in units.split("\\u")[1:])
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if (code := match["braced"] or match["long"]) is not None:
        return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else ""
    if (name := match["name"]) is not None:
        try:
            return unicodedata.lookup(name)
        except KeyError:
            return match[0]
    if match["letter"] is not None:
        return " "
    return match["plain"] if match["entity"] is None else html.unescape(match["entity"])


def _span(reading: _Reading, start: int, end: int) -> tuple[int, int]:
    return reading.lines[start][0], reading.lines[end - 1][1]


def _without_plus(reading: _Reading) -> Iterator[_Reading]:
    """Yield the reading without `+`, which is a space in HTML forms."""
    if "+" in reading.text:
        kept = [at for at, char in enumerate(reading.text) if char != "+"]
        yield from _unescaped(_Reading(reading.text.replace("+", ""), [reading.lines[at] for at in kept]))


def _decoded(reading: _Reading) -> Iterator[_Reading]:
    """Yield the decoded parts of a reading that may be base64 or hex, at each alignment."""
    runs = list(_BASE64.finditer(reading.text))
    for shift in range(4) if runs else ():
        yield _join(_decode_base64(reading, run.start() + shift, run.end()) for run in runs)
    digits = [
        [digit.start() for digit in _HEX_DIGIT.finditer(reading.text, run.start(), run.end()) if digit[1]]
        for run in _HEX.finditer(reading.text)
    ]
    for shift in range(2) if digits else ():
        yield _join(_decode_hex(reading, run[shift:]) for run in digits)


def _decode_base64(reading: _Reading, start: int, end: int) -> _Reading:
    if (end - start) % 4 == 1:
        end -= 1
    text = reading.text[start:end].translate(_STANDARD)
    data = binascii.a2b_base64(text + "=" * (-len(text) % 4))
    origins = [_span(reading, at, min(at + 2, end)) for at in (start + byte * 4 // 3 for byte in range(len(data)))]
    return _decode_bytes(data, origins, "utf-8")


def _decode_hex(reading: _Reading, digits: Sequence[int]) -> _Reading:
    pairs = list(zip(digits[::2], digits[1::2], strict=False))
    data = bytes(int(reading.text[high] + reading.text[low], 16) for high, low in pairs)
    return _decode_bytes(data, [_span(reading, high, low + 1) for high, low in pairs], "utf-8")


def _decode_bytes(data: bytes, origins: _Lines, encoding: str) -> _Reading:
    text = data.decode(encoding, "surrogateescape")
    lines: _Lines = []
    at = 0
    for char in text:
        size = 1 if encoding != "utf-8" or "\udc80" <= char <= "\udcff" else len(char.encode())
        lines.append((origins[at][0], origins[at + size - 1][1]))
        at += size
    return _Reading(text, lines)


def _join(parts: Iterable[_Reading]) -> _Reading:
    texts: list[str] = []
    lines: _Lines = []
    for part in parts:
        if part.text:
            texts.append(part.text + _BETWEEN)
            lines += [*part.lines, part.lines[-1]]
    return _Reading("".join(texts), lines)


# ── normalisation ──


def _squeeze(reading: _Reading) -> _Reading:
    """Return the reading in compatibility form, without characters that are not visible. Keeps the case."""
    return _map(reading, _squeezed)


def _fold(reading: _Reading) -> _Reading:
    return _map(reading, _folded)


def _map(reading: _Reading, change: Callable[[str], str]) -> _Reading:
    """Return the reading with each character replaced by some, or by none."""
    changed = [change(char) for char in reading.text]
    lines = [origin for text, origin in zip(changed, reading.lines, strict=True) for _ in range(len(text))]
    return _Reading("".join(changed), lines)


@lru_cache(maxsize=4096)
def _squeezed(char: str) -> str:
    return "".join(
        each
        for each in unicodedata.normalize("NFKD", char)
        if each not in _BLANK and unicodedata.category(each) not in _IGNORED
    )


@lru_cache(maxsize=4096)
def _folded(char: str) -> str:
    # In upper case first: that of a dotless `ı` is `I`, which only then has the same form.
    return "".join(_squeezed(each) for each in _squeezed(char).upper().casefold())
