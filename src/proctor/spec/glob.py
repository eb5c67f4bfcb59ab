"""Match globs against paths of a workspace, in linear time for any glob. Pure."""

import re
from functools import lru_cache
from typing import Any

from proctor.spec.pattern import compile_pattern

_PART = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|[^*?\[]+|\[")
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_NOTHING = r"[^\x{0}-\x{10FFFF}]"


def fits(path: str, glob: str) -> bool:
    """Return whether a glob matches a path. Raises ValueError if the glob is invalid.

    `*` matches within one folder, `**` across folders, and `src/` everything below that folder.

    >>> [fits("src/a/b.py", glob) for glob in ("src/*.py", "src/**/*.py", "**/b.py", "src/", "src/a/[a-c].?y")]
    [False, True, True, True, True]
    >>> fits("b.py", "**/b.py"), fits("a.b", "a[!.]b"), fits("a[b", "a[b"), fits("a/b", "a[+-9]b")
    (True, False, True, False)
    """
    return compile_glob(glob).fullmatch(_without_surrogates(path)) is not None


@lru_cache(maxsize=1024)
def compile_glob(glob: str) -> Any:
    """Compile a glob to an object with `fullmatch`. Raises ValueError if the glob is invalid.

    >>> compile_glob("[z-a]")
    Traceback (most recent call last):
    ValueError: in `[z-a]` z comes after a
    """
    full_glob = f"{glob}**" if glob.endswith("/") else glob
    return compile_pattern("(?s)" + "".join(map(_translate, _PART.findall(_without_surrogates(full_glob)))))


def _translate(part: str) -> str:
    match part:
        case "**/":
            return "(?:.*/)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
        case _ if part.startswith("[") and part.endswith("]"):
            return _translate_class(part)
        case _:
            return "".join(map(_escape, part))


def _translate_class(part: str) -> str:
    """Translate `[…]`. RE2 has no lookahead, so the slash is removed from the ranges themselves."""
    inner = part[1:-1]
    is_negated = inner.startswith(("!", "^"))
    ranges = [(match[1] or match[3], match[2] or match[3]) for match in _RANGE.finditer(inner[is_negated:])]
    if not ranges:
        raise ValueError(f"`{part}` contains no character")
    for first, last in ranges:
        if first > last:
            raise ValueError(f"in `{part}` {first} comes after {last}")
    if is_negated:
        return f"[^/{''.join(_span(*each) for each in ranges)}]"
    pieces = [
        piece
        for first, last in ranges
        for piece in ([(first, min(last, ".")), (max(first, "0"), last)] if first <= "/" <= last else [(first, last)])
    ]
    spans = "".join(_span(*each) for each in pieces if each[0] <= each[1])
    return f"[{spans}]" if spans else _NOTHING


def _span(first: str, last: str) -> str:
    return f"{_escape(first)}-{_escape(last)}"


def _escape(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}"


def _without_surrogates(text: str) -> str:
    """Move surrogates, which represent undecodable bytes of a name, to the last private plane: RE2 rejects them."""
    if text.isascii():
        return text
    return "".join(chr(ord(char) + 0x100000) if "\ud800" <= char <= "\udfff" else char for char in text)
