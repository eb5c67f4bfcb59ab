"""Shorten program output to redacted text. Redaction comes first: a partial secret is not recognized."""

import codecs
from typing import Final

from proctor.evidence.redact import Redactor

TAIL_BYTES: Final = 4096
# How many bytes beyond the shown beginning are redacted together with it.
_MARGIN_BYTES: Final = 8192

_decoder = codecs.getincrementaldecoder("utf-8")


def tail(data: bytes, *, redactor: Redactor, is_cut: bool = False, limit_bytes: int = TAIL_BYTES) -> str:
    r"""Return the redacted end of `data`, of at most `limit_bytes`. States what was left out.

    Starts at a character boundary. Bytes that are not UTF-8 are replaced. `is_cut` means that `data` is itself only the
    beginning of the output.

    >>> tail("aéé".encode(), redactor=Redactor([]), limit_bytes=3)
    '[3 bytes before this left out]\né'
    >>> tail(b"caf\xe9!", redactor=Redactor([]), is_cut=True)
    'caf�!\n[output after this left out]'
    """
    text = _redact(data, redactor=redactor, is_cut=is_cut).encode(errors="surrogateescape")
    start = max(0, len(text) - limit_bytes)
    while 0 < start < len(text) and text[start] & 0xC0 == 0x80 and len(text) - start > limit_bytes - 3:
        start += 1
    before = f"[{start} bytes before this left out]\n" if start else ""
    after = "\n[output after this left out]" if is_cut else ""
    return before + text[start:].decode(errors="replace") + after


def head(data: bytes, *, redactor: Redactor, limit_chars: int, is_cut: bool = False) -> str:
    """Return the redacted beginning of `data`. The caller must state that it is shortened.

    >>> head(b"abcdef", redactor=Redactor([]), limit_chars=3)
    'abc'
    """
    most = limit_chars * 4 + _MARGIN_BYTES
    text = _redact(data[:most], redactor=redactor, is_cut=is_cut or len(data) > most)
    return text.encode(errors="surrogateescape").decode(errors="replace")[:limit_chars]


def _redact(data: bytes, *, redactor: Redactor, is_cut: bool) -> str:
    if not is_cut:
        return redactor.text(data.decode(errors="surrogateescape")).text
    # The incremental decoder drops an incomplete last character, which would hide a secret that begins before it.
    return redactor.broken_off(_decoder("surrogateescape").decode(data)).text
