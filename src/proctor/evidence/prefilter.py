"""One quick look at undecoded bytes that says whether anything in them must be looked at closely."""

from collections.abc import Iterable
from typing import Final

import re2  # type: ignore[import-untyped]

from proctor.evidence.needles import LINE_CHARS, LINE_END, Needles
from proctor.evidence.scan import HINTS

# Longer ones only make the automaton larger; what begins like this is looked at closely anyway.
_ENOUGH_CHARS: Final = 40
_MEMORY_BYTES: Final = 64 * 1024 * 1024

# Escapes that nobody needs to use may hide anything; one like `\u001b` can hide only a control character.
_ODD_ESCAPES: Final = (r"\\/", r"\\u(?:[^0]|0[^0]|00[^01])", r"\\x[2-9A-Fa-f]", r"\\U000")
_WRAPPED: Final = rf"[A-Za-z0-9+/_-]{{{LINE_CHARS}}}{LINE_END}"
_PATTERNS: Final = (*HINTS, *_ODD_ESCAPES, _WRAPPED)


def in_bytes(text: str) -> bytes:
    """A text that may hold what was no UTF-8, as the bytes it came from."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


class Prefilter:
    """google-re2: one pass over a chunk, however many secrets there are. Where it sees nothing there is nothing.

    `keys` are names of fields whose values are masked whatever they are.

    >>> Prefilter(Needles([]), keys=["planType"]).may_hold(b'{"planType":"pro"}')
    True
    """

    def __init__(self, needles: Needles, *, keys: Iterable[str]) -> None:
        known = needles.spellings
        literals = {in_bytes(text[:_ENOUGH_CHARS]) for text in known} | {f'"{key}"'.encode() for key in keys}
        patterns = [*map(re2.escape, sorted(literals)), *(pattern.encode() for pattern in _PATTERNS)]
        if any(char < " " for text in known for char in text):
            patterns.append(rb"\\u")
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.max_mem = _MEMORY_BYTES
        options.never_capture = True
        self._search = re2.compile(b"|".join(patterns), options).search

    def may_hold(self, data: bytes) -> bool:
        """Undecoded JSON, or the bytes of a text."""
        return self._search(data) is not None
