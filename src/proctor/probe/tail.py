"""What a program said, as redacted text of bounded length. A cut comes last: half a secret is not recognised."""

import codecs
from typing import Final

from proctor.evidence.redact import Redactor

TAIL_BYTES: Final = 4096
# So much beyond what is shown of a beginning is redacted with it.
_MARGIN_BYTES: Final = 8192

_decoder = codecs.getincrementaldecoder("utf-8")


def tail(data: bytes, *, redactor: Redactor, is_cut: bool = False, limit_bytes: int = TAIL_BYTES) -> str:
    r"""Begins between characters; bytes that are no UTF-8 are replaced; every cut is stated.

    >>> tail("aéé".encode(), redactor=Redactor([]), limit_bytes=3)
    '[3 bytes before this left out]\né'
    >>> tail(b"caf\xe9!", redactor=Redactor([]), is_cut=True)
    'caf�!\n[output after this left out]'
    """
    said = _redacted(data, redactor=redactor, is_cut=is_cut).encode(errors="surrogateescape")
    start = max(0, len(said) - limit_bytes)
    while 0 < start < len(said) and said[start] & 0xC0 == 0x80 and len(said) - start > limit_bytes - 3:
        start += 1
    before = f"[{start} bytes before this left out]\n" if start else ""
    after = "\n[output after this left out]" if is_cut else ""
    return before + said[start:].decode(errors="replace") + after


def head(data: bytes, *, redactor: Redactor, limit_chars: int, is_cut: bool = False) -> str:
    """The beginning; whoever shows it states the cut.

    >>> head(b"abcdef", redactor=Redactor([]), limit_chars=3)
    'abc'
    """
    most = limit_chars * 4 + _MARGIN_BYTES
    said = _redacted(data[:most], redactor=redactor, is_cut=is_cut or len(data) > most)
    return said.encode(errors="surrogateescape").decode(errors="replace")[:limit_chars]


def _redacted(data: bytes, *, redactor: Redactor, is_cut: bool) -> str:
    if not is_cut:
        return redactor.text(data.decode(errors="surrogateescape")).text
    # Not to its end: what is left of a character would hide that a secret had begun before it.
    return redactor.broken_off(_decoder("surrogateescape").decode(data)).text
