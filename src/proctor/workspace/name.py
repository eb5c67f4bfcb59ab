"""Write paths that may contain any byte as text, quoted as git quotes them, except that UTF-8 is kept."""

import os
import re
from typing import Final

_SHORT: Final = {
    **{ord(char): f"\\{letter}" for char, letter in zip("\a\b\t\n\v\f\r", "abtnvfr", strict=True)},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}


def quoted(path: str) -> str:
    r"""Return a path as valid text. Different paths have different texts, and `git apply` understands all of them.

    >>> print(quoted("a é.txt"), quoted("two\nlines"), quoted("bad\udcff"))
    a é.txt "two\nlines" "bad\377"
    """
    # UTF-8 regardless of the locale, so that the same bytes give the same text everywhere.
    text = os.fsencode(path).decode("utf-8", "surrogateescape")
    escaped = "".join(_escape(ord(char)) for char in text)
    return text if escaped == text else f'"{escaped}"'


def _escape(code: int) -> str:
    if code in _SHORT:
        return _SHORT[code]
    if code < 0x20 or code == 0x7F:
        return f"\\{code:03o}"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\{code - 0xDC00:03o}"
    return chr(code)


_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_UNESCAPED: Final = {escape[1]: chr(code) for code, escape in _SHORT.items()}


def unquoted(text: str) -> str:
    r"""Return the path for which `quoted` returned this text.

    >>> unquoted('"two\\nlines"'), unquoted('"bad\\377"'), unquoted("a é.txt")
    ('two\nlines', 'bad\udcff', 'a é.txt')
    """
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return text

    def unescape(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 1:
            return _UNESCAPED.get(code, code)
        return chr(int(code, 8) if int(code, 8) < 0x80 else 0xDC00 + int(code, 8))

    return _ESCAPE.sub(unescape, text[1:-1])
