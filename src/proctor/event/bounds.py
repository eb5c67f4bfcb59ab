"""Size limits of texts in derived files. A text is cut between characters, and the cut is recorded."""

from typing import Any

import msgspec

TEXT_BYTES = 64 * 1024
"""Most bytes of a message, a prompt or a tool's input."""

PREVIEW_BYTES = 16 * 1024
"""Most bytes of a tool's output."""


def cut(text: str, *, limit_bytes: int) -> tuple[str, int]:
    """Cut a text to `limit_bytes` of UTF-8. Returns the text and the number of bytes left out.

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
    head = data[:limit_bytes].decode("utf-8", "ignore")
    return head, len(data) - len(head.encode("utf-8", "surrogatepass"))


def bounded_input(value: Any) -> tuple[Any, int]:
    """Return a tool's input, or the beginning of its JSON if too long, and the number of bytes left out."""
    data = msgspec.json.encode(value)
    if len(data) <= TEXT_BYTES:
        return value, 0
    return cut(data.decode(), limit_bytes=TEXT_BYTES)
