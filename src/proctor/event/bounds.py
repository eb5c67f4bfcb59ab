"""How long a text in a derived file may be; a cut falls between characters and is stated."""

from typing import Any

import msgspec

TEXT_BYTES = 64 * 1024
PREVIEW_BYTES = 16 * 1024


def cut(text: str, *, limit_bytes: int) -> tuple[str, int]:
    """The text within the limit, and how many bytes were left out.

    >>> cut("abc", limit_bytes=8)
    ('abc', 0)
    >>> cut("aéé", limit_bytes=4)
    ('aé', 2)
    """
    if len(text) * 4 <= limit_bytes:
        return text, 0
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit_bytes:
        return text, 0
    kept = data[:limit_bytes].decode("utf-8", "ignore")
    return kept, len(data) - len(kept.encode("utf-8", "surrogatepass"))


def bounded_input(value: Any) -> tuple[Any, int]:
    """A tool's input as it is, or the head of its JSON where it is too long."""
    data = msgspec.json.encode(value)
    if len(data) <= TEXT_BYTES:
        return value, 0
    return cut(data.decode(), limit_bytes=TEXT_BYTES)
