"""Split a stream of bytes into lines. Pure."""

# The longest line that an agent may send. The recorded row may be longer, because of escapes and placeholders.
MAX_LINE_BYTES = 32 * 1024 * 1024


class LineSplitter:
    """Split a stream of chunks at newlines. Blank lines are dropped, unless `is_verbatim` is set.

    A line over `limit_bytes` is returned in pieces of that length, so that memory stays bounded and no byte is lost.

    >>> splitter = LineSplitter(limit_bytes=64)
    >>> splitter.feed(b'{"a":1}\\n{"b"')
    [b'{"a":1}']
    >>> splitter.feed(b':2}\\n')
    [b'{"b":2}']
    >>> splitter.rest()
    b''
    """

    def __init__(self, *, limit_bytes: int, is_verbatim: bool = False) -> None:
        self._limit_bytes = limit_bytes
        self._is_verbatim = is_verbatim
        self._open: list[bytes] = []
        self._open_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add a chunk. Returns the lines that it completes."""
        # Only the new chunk is searched, so that a slow 100 MB line takes linear time.
        *ends, tail = chunk.split(b"\n")
        lines: list[bytes] = []
        for end in ends:
            line = end
            if self._open or len(end) > self._limit_bytes:
                lines += self._grow(end)
                line = self.rest()
            if self._is_verbatim:
                lines.append(line)
            elif line.strip():
                lines.append(line.removesuffix(b"\r"))
        return lines + self._grow(tail)

    def rest(self) -> bytes:
        """Return and clear what follows the last newline; at the end of a stream, an incomplete line."""
        rest, self._open, self._open_bytes = b"".join(self._open), [], 0
        return rest

    def _grow(self, more: bytes) -> list[bytes]:
        """Add to the open line. Returns the pieces that exceed the limit."""
        pieces: list[bytes] = []
        while self._open_bytes + len(more) > self._limit_bytes:
            room = self._limit_bytes - self._open_bytes
            self._open.append(more[:room])
            pieces.append(self.rest())
            more = more[room:]
        if more:
            self._open.append(more)
            self._open_bytes += len(more)
        return pieces
