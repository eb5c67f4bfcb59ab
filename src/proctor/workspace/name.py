"""How a path that may hold any byte is spelled in text: as git spells it, with UTF-8 left as it is."""

import os
import re
from typing import Final

_SHORT: Final = {
    **{ord(char): f"\\{letter}" for char, letter in zip("\a\b\t\n\v\f\r", "abtnvfr", strict=True)},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}


def quoted(path: str) -> str:
    r"""Valid text for any path; two paths never share a spelling, and `git apply` reads them all.

    >>> print(quoted("a é.txt"), quoted("two\nlines"), quoted("bad\udcff"))
    a é.txt "two\nlines" "bad\377"
    """
    # Not the locale's: the same bytes are spelled the same way everywhere.
    text = os.fsencode(path).decode("utf-8", "surrogateescape")
    spelled = "".join(_spell(ord(char)) for char in text)
    return text if spelled == text else f'"{spelled}"'


def _spell(code: int) -> str:
    if code in _SHORT:
        return _SHORT[code]
    if code < 0x20 or code == 0x7F:
        return f"\\{code:03o}"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\{code - 0xDC00:03o}"
    return chr(code)


_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_LONG: Final = {spelled[1]: chr(code) for code, spelled in _SHORT.items()}


def unquoted(spelled: str) -> str:
    r"""The path that `quoted` spelled so.

    >>> unquoted('"two\\nlines"'), unquoted('"bad\\377"'), unquoted("a é.txt")
    ('two\nlines', 'bad\udcff', 'a é.txt')
    """
    if len(spelled) < 2 or not (spelled.startswith('"') and spelled.endswith('"')):
        return spelled

    def char(found: re.Match[str]) -> str:
        code = found[1]
        if len(code) == 1:
            return _LONG.get(code, code)
        return chr(int(code, 8) if int(code, 8) < 0x80 else 0xDC00 + int(code, 8))

    return _ESCAPE.sub(char, spelled[1:-1])
