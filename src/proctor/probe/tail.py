"""The end of what a program said, as text of bounded length."""

from typing import Final

TAIL_BYTES: Final = 4096


def tail(data: bytes, *, is_cut: bool = False, limit_bytes: int = TAIL_BYTES) -> str:
    r"""Begins between characters; bytes that are no UTF-8 are replaced; every cut is stated.

    >>> tail("aéé".encode(), limit_bytes=3)
    '[3 bytes before this left out]\né'
    >>> tail(b"caf\xe9", is_cut=True)
    'caf�\n[output after this left out]'
    """
    start = max(0, len(data) - limit_bytes)
    while 0 < start < len(data) and data[start] & 0xC0 == 0x80 and len(data) - start > limit_bytes - 3:
        start += 1
    before = f"[{start} bytes before this left out]\n" if start else ""
    after = "\n[output after this left out]" if is_cut else ""
    return before + data[start:].decode(errors="replace") + after
