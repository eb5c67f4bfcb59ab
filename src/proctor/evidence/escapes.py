"""Decodes unusual escapes (`\\x73`, `\\163`, `\\u{73}`, `%73`), so that a secret spelled with them can be found."""

import re
from bisect import bisect_right
from itertools import pairwise
from operator import itemgetter
from typing import Final

import msgspec

from proctor.evidence.spellings import escape

Origins = list[tuple[int, int]]
"""Start of each piece of a changed text: its offset there, and its offset in the original. In order."""

# `\u0073` or a surrogate pair, but not a lone surrogate; `\u{73}`, `\x73`, `\U00000073`, `\163`, `\0163`, `%73`.
_ESCAPE: Final = re.compile(
    r"\\u(?:([Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})|((?![Dd][89A-Fa-f])[0-9A-Fa-f]{4})"
    r"|\{0{0,4}([0-9A-Fa-f]{1,5})\})|\\U000([01][0-9A-Fa-f]{4})"
    r"|\\x([0-9A-Fa-f]{2})|\\0?([1-3][0-7]{2}|0[0-7]{2})|%([0-9A-Fa-f]{2})"
)
_PAIR, _FOUR, _BRACED, _EIGHT, _HEX, _OCTAL, _PERCENT = range(1, 8)

# Escapes that nothing needs, because they are letters, digits or `-._~` in a URL, or printable elsewhere.
ODD_BACKSLASH: Final = (
    r"\\u(?:[^0]|0[^0]|00[^01])",
    r"\\x[2-9A-Fa-f]",
    r"\\U000",
    r"\\0?(?:[1-3][0-7]{2}|0[4-7][0-7])",
)
ODD_PERCENT: Final = r"%(?:2[DEde]|3[0-9]|[46][1-9A-Fa-f]|5[0-9AaFf]|7[0-9AaEe])"
# An incomplete character in UTF-8, or the first half of a surrogate pair, and then the beginning of an escape.
_TWO: Final = r"(?:\\x[CDcd][0-9A-Fa-f]|\\3[0-3][0-7]|%[CDcd][0-9A-Fa-f])"
_THREE: Final = r"(?:\\x[Ee][0-9A-Fa-f]|\\3[45][0-7]|%[Ee][0-9A-Fa-f])"
_FOUR_BYTES: Final = r"(?:\\x[Ff][0-4]|\\36[0-4]|%[Ff][0-4])"
_MORE: Final = r"(?:\\x[89ABab][0-9A-Fa-f]|\\2[0-7]{2}|%[89ABab][0-9A-Fa-f])"
_CUT: Final = re.compile(
    rf"(?:{_TWO}|{_THREE}{_MORE}?|{_FOUR_BYTES}{_MORE}{{0,2}}|\\u[Dd][89ABab][0-9A-Fa-f]{{2}})?"
    r"(?:\\(?:u[0-9A-Fa-f]{0,3}|u\{[0-9A-Fa-f]{0,9}|U[0-9A-Fa-f]{0,7}|x[0-9A-Fa-f]?|[0-3][0-7]?|0[0-3][0-7])?"
    r"|%[0-9A-Fa-f]?)?\Z"
)
_BACKSLASH: Final = re.compile("|".join(ODD_BACKSLASH) + r"|\\(?:[uU][0-9A-Fa-f{]{0,10}|x.?|[0-3][0-7]{0,2})?\Z")
_PERCENTS: Final = re.compile(rf"{ODD_PERCENT}|%[0-9A-Fa-f]?\Z|%[C-Fc-f][0-9A-Fa-f](?:%[89ABab][0-9A-Fa-f]){{0,2}}\Z")
_UTF8_BYTES: Final = ((0xC2, 0xDF, 2), (0xE0, 0xEF, 3), (0xF0, 0xF4, 4))


class DecodedText(msgspec.Struct, frozen=True, gc=False):
    """A text whose escapes were decoded."""

    text: str
    origins: Origins

    def origin(self, at: int) -> int:
        """Return the offset in the original text of an offset in this one."""
        return origin_of(at, self.origins)


def has_escapes(text: str) -> bool:
    """Whether a text contains an unusual escape, or ends in what may become one.

    >>> has_escapes(r"a \\x73"), has_escapes("100%"), has_escapes(r"a\\n%20b")
    (True, True, False)
    """
    return ("\\" in text and _BACKSLASH.search(text) is not None) or (
        "%" in text and _PERCENTS.search(text) is not None
    )


def cut_at(text: str) -> int:
    """Return where an escape begins that the end of the text cuts off, or the length of the text."""
    # The longest is shorter than this.
    cut = _CUT.search(text, max(0, len(text) - 32))
    return len(text) if cut is None else cut.start()


def decode_escapes(text: str) -> DecodedText:
    r"""Decode the escapes of a text. After a backslash, a character becomes its usual JSON spelling.

    >>> decode_escapes(r"\163k \x22 p\303\244ss %73").text
    'sk \\" päss s'
    """
    pieces: list[str] = []
    origins, done, size = [(0, 0)], 0, 0
    escapes = list(_ESCAPE.finditer(text))
    at = 0
    while at < len(escapes):
        char, count = _character(escapes, at)
        first, last = escapes[at], escapes[at + count - 1]
        plain = text[done : first.start()]
        shown = char if first.lastindex == _PERCENT else escape(char)
        pieces += plain, shown
        origins.append((size + len(plain), first.start()))
        done, size, at = last.end(), size + len(plain) + len(shown), at + count
        origins.append((size, done))
    pieces.append(text[done:])
    return DecodedText("".join(pieces), origins)


def _character(escapes: list[re.Match[str]], at: int) -> tuple[str, int]:
    """Return the character that begins at an escape, and of how many escapes it consists."""
    kind = escapes[at].lastindex or 0
    code = escapes[at][kind]
    if kind == _PAIR:
        return (bytes.fromhex(code[:4]) + bytes.fromhex(code[6:])).decode("utf-16-be"), 1
    value = int(code, 8 if kind == _OCTAL else 16)
    if kind in (_HEX, _OCTAL, _PERCENT):
        size = next((size for low, high, size in _UTF8_BYTES if low <= value <= high), 1)
        run = escapes[at : at + size]
        is_run = all(left.end() == right.start() and right.lastindex == kind for left, right in pairwise(run))
        if size > 1 and len(run) == size and is_run:
            data = bytes(int(each[kind], 8 if kind == _OCTAL else 16) & 255 for each in run)
            try:
                return data.decode(), size
            except UnicodeDecodeError:
                pass
    return chr(value), 1


def origin_of(at: int, origins: Origins) -> int:
    """Return the offset in the original text of an offset in a changed one."""
    start, origin = origins[bisect_right(origins, at, key=itemgetter(0)) - 1]
    return origin + at - start
