"""Globs over the paths of a workspace, matched in linear time whatever is written. Pure."""

import re
from functools import lru_cache
from typing import Any

from proctor.spec.pattern import compile_pattern

_PART = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|[^*?\[]+|\[")
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_NOTHING = r"[^\x{0}-\x{10FFFF}]"


def fits(path: str, glob: str) -> bool:
    """Whether a path is one of a glob's. `*` stays within a folder, `**` does not, and `src/` is all that is below it.

    ValueError where it is no glob.

    >>> [fits("src/a/b.py", glob) for glob in ("src/*.py", "src/**/*.py", "**/b.py", "src/", "src/a/[a-c].?y")]
    [False, True, True, True, True]
    >>> fits("b.py", "**/b.py"), fits("a.b", "a[!.]b"), fits("a[b", "a[b"), fits("a/b", "a[+-9]b")
    (True, False, True, False)
    """
    return compile_glob(glob).fullmatch(_without_surrogates(path)) is not None


@lru_cache(maxsize=1024)
def compile_glob(glob: str) -> Any:
    """Something with `fullmatch`. ValueError where it is no glob.

    >>> compile_glob("[z-a]")
    Traceback (most recent call last):
    ValueError: in `[z-a]` z comes after a
    """
    whole = f"{glob}**" if glob.endswith("/") else glob
    return compile_pattern("(?s)" + "".join(map(_translated, _PART.findall(_without_surrogates(whole)))))


def _translated(part: str) -> str:
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
            return _one_of(part)
        case _:
            return "".join(map(_escaped, part))


def _one_of(part: str) -> str:
    """RE2 cannot look ahead, so that the slash is taken out of the ranges themselves."""
    inner = part[1:-1]
    is_negated = inner.startswith(("!", "^"))
    ranges = [(found[1] or found[3], found[2] or found[3]) for found in _RANGE.finditer(inner[is_negated:])]
    if not ranges:
        raise ValueError(f"`{part}` names no character")
    for first, last in ranges:
        if first > last:
            raise ValueError(f"in `{part}` {first} comes after {last}")
    if is_negated:
        return f"[^/{''.join(_span(*each) for each in ranges)}]"
    around = [
        piece
        for first, last in ranges
        for piece in ([(first, min(last, ".")), (max(first, "0"), last)] if first <= "/" <= last else [(first, last)])
    ]
    spans = "".join(_span(*each) for each in around if each[0] <= each[1])
    return f"[{spans}]" if spans else _NOTHING


def _span(first: str, last: str) -> str:
    return f"{_escaped(first)}-{_escaped(last)}"


def _escaped(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}"


def _without_surrogates(text: str) -> str:
    """RE2 takes Unicode only. The bytes of a name that is none go to the last private plane."""
    if text.isascii():
        return text
    return "".join(chr(ord(char) + 0x100000) if "\ud800" <= char <= "\udfff" else char for char in text)
