"""A fast search over undecoded bytes that decides whether they need a close look for secrets."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Final

import re2  # type: ignore[import-untyped]

from proctor.evidence.escapes import ODD_BACKSLASH, ODD_PERCENT
from proctor.evidence.needles import LINE_CHARS, LINE_END, Needles
from proctor.evidence.scan import HINTS, KEY_HINT

# A longer prefix would only make the automaton larger: what begins like this gets a close look anyway.
_PREFIX_CHARS: Final = 16
_MEMORY_BYTES: Final = 64 * 1024 * 1024

# Unnecessary escapes may hide anything. One like `\u001b` can only be a control character.
_ODD_ESCAPES: Final = (r"\\/", *ODD_BACKSLASH, ODD_PERCENT)
_WRAPPED: Final = rf"[A-Za-z0-9+/_-]{{{LINE_CHARS}}}{LINE_END}"
_PATTERNS: Final = (*HINTS, *_ODD_ESCAPES)


def to_bytes(text: str) -> bytes:
    """Encode a text that may contain surrogate escapes back to its original bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _literals(texts: Iterable[str]) -> list[bytes]:
    return [re2.escape(start) for start in sorted({to_bytes(text[:_PREFIX_CHARS]) for text in texts})]


class Prefilter:
    """One google-re2 pass over a chunk for any number of secrets. No match means that there is nothing to mask.

    `keys` are names of fields whose values are always masked.

    >>> Prefilter(Needles([]), keys=["planType"]).may_hold(b'{"planType":"pro"}')
    True
    """

    def __init__(self, needles: Needles, *, keys: Iterable[str]) -> None:
        folded, exact = needles.folded_spellings, needles.exact_spellings
        patterns = [pattern.encode() for pattern in (*_PATTERNS, *needles.number_patterns)]
        patterns += [rb"(?i:%b)" % literal for literal in _literals(folded)]
        patterns += [*_literals(exact), *(re2.escape(f'"{key}"'.encode()) for key in sorted(keys))]
        # JSON has several spellings of a control character, but only one of NUL.
        if any("\0" < char < " " for text in folded | exact for char in text):
            patterns.append(rb"\\u")
        self._patterns = patterns
        self._search = _compile([*patterns, _WRAPPED.encode()]).search

    def may_hold(self, data: bytes) -> bool:
        """Whether undecoded JSON, or the bytes of a text, may contain something to mask."""
        return self._search(data) is not None

    def hits(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield where undecoded JSON may contain something to mask, by start. Whatever does overlaps a hit.

        Also found is every key after which the value itself decides.
        """
        return heapq.merge(*((match.span() for match in search(data)) for search in self._finders))

    @cached_property
    def _finders(self) -> tuple[Callable[[bytes], Iterator[Any]], ...]:
        # One alone has five times the states of both, and a state is built when a text first leads to it.
        return _compile([*self._patterns, KEY_HINT.encode()]).finditer, _compile([_WRAPPED.encode()]).finditer


def _compile(patterns: Iterable[bytes]) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MEMORY_BYTES
    options.never_capture = True
    return re2.compile(b"|".join(patterns), options)
