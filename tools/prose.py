"""Find the prose of a file: all other characters are blanked, so that offsets and line numbers stay the same."""

import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final

CODE: Final = "\0"
"""What each character of code becomes. It is neither a word nor white space, so no phrase reaches across it."""

_OPENING = re.compile(r"([A-Za-z]*)('''|\"\"\"|'|\")")
_PLAIN = re.compile(r"[^\\{}'\"]+")
_ESCAPE = re.compile(r"\\(?:N\{[^}]*\}|.)", re.DOTALL)
_DOCTEST = re.compile(r"^[^\S\n]*>>> .*(?:\n[^\S\n]*[^\s\0].*)*", re.MULTILINE)
_LINK_TARGET = re.compile(r"(?<=\]\()[^)\s]+")

# An f-string is one token before Python 3.12, and several since.
_STARTS = {getattr(tokenize, name, None) for name in ("FSTRING_START", "TSTRING_START")}
_ENDS = {getattr(tokenize, name, None) for name in ("FSTRING_END", "TSTRING_END")}


def markdown_prose(text: str) -> str:
    """Keep Markdown whole, with its code blocks, but without the targets of links."""
    return _LINK_TARGET.sub(lambda found: _coded(found[0]), text)


def python_prose(source: str) -> str:
    """Keep the comments and string literals of Python source, without the code inside f-strings and doctests.

    >>> python_prose('x = f"{a is None} is none"  # a comment').replace(CODE, ".")
    '. . .... .. ..... is none.    a comment'
    """
    kept = list(_coded(source))
    closing = range(0)
    for start, end, follows in _spans(source):
        if source[start] == "#":
            kept[start:end] = [" ", *source[start + 1 : end]]
            continue
        text, _ = _literal(source, start)
        kept[start:end] = _DOCTEST.sub(lambda found: _coded(found[0]), text)
        opening = _opening(source, start)
        if follows:
            # Implicit concatenation: a phrase may continue across the quotes.
            for place in (*closing, *range(start, opening.end())):
                kept[place] = " "
        closing = range(end - len(opening[2]), end)
    return "".join(kept)


def _spans(source: str) -> Iterator[tuple[int, int, bool]]:
    """Yield start and end of each comment and literal, and whether a literal continues the literal before it."""
    offsets = [0]
    for line in io.StringIO(source):
        offsets.append(offsets[-1] + len(line))
    outermost: list[int] = []
    follows = False
    # Most tokens are code: their offsets are not computed.
    for kind, _, (row, column), (end_row, end_column), _ in tokenize.generate_tokens(io.StringIO(source).readline):
        if kind in _STARTS:
            outermost.append(offsets[row - 1] + column)
        elif kind in _ENDS:
            opened = outermost.pop()
            if not outermost:
                yield opened, offsets[end_row - 1] + end_column, follows
                follows = True
        elif outermost:
            continue
        elif kind == tokenize.STRING:
            yield offsets[row - 1] + column, offsets[end_row - 1] + end_column, follows
            follows = True
        elif kind == tokenize.COMMENT:
            yield offsets[row - 1] + column, offsets[end_row - 1] + end_column, False
        elif kind != tokenize.NL:
            follows = False


def _literal(source: str, start: int) -> tuple[str, int]:
    """Return the prose of the literal that starts here, as long as the literal itself, and the literal's end."""
    opening = _opening(source, start)
    prefix, quote = opening[1].lower(), opening[2]
    text = [CODE * len(opening[0])]
    at = opening.end()
    while not source.startswith(quote, at):
        if plain := _PLAIN.match(source, at):
            text.append(plain[0])
            at = plain.end()
        elif source[at] == "\\" and (escape := _ESCAPE.match(source, at)):
            is_raw = "r" in prefix
            width = 1 if is_raw and escape[0][1] in "{}" else 2 if is_raw else len(escape[0])
            taken = source[at : at + width]
            text.append(taken if is_raw else "".join("\n" if char == "\n" else " " for char in taken))
            at += width
        elif source[at] == "{" and ("f" in prefix or "t" in prefix) and source[at + 1] != "{":
            code, at = _field(source, at)
            text.append(code)
        else:
            width = 2 if source.startswith(("{{", "}}"), at) else 1
            text.append(source[at : at + width])
            at += width
    return "".join(text) + CODE * len(quote), at + len(quote)


def _field(source: str, start: int) -> tuple[str, int]:
    """Return the prose of the replacement field that starts here (its own literals), and the field's end."""
    text, at, depth, is_format = [CODE], start + 1, 0, False
    while depth or source[at] != "}":
        char = source[at]
        opening = _OPENING.match(source, at)
        if opening and not is_format and not (source[at - 1].isalnum() or source[at - 1] == "_"):
            inner, at = _literal(source, at)
            text.append(inner)
            continue
        if char == "{" and is_format:
            inner, at = _field(source, at)
            text.append(inner)
            continue
        depth += (char in "([{") - (char in ")]}")
        is_format = is_format or (char == ":" and not depth)
        text.append(_coded(char))
        at += 1
    return "".join(text) + CODE, at + 1


def _opening(source: str, start: int) -> re.Match[str]:
    found = _OPENING.match(source, start)
    if found is None:
        raise ValueError(f"no string literal at offset {start}")
    return found


def _coded(text: str) -> str:
    return re.sub(r"\S", CODE, text)
