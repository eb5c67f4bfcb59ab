"""Bytes in, whole lines out: no task, no file, no clock."""

# The longest line an agent may say. What is recorded of one may be longer: its escapes, its placeholders, its row.
MAX_LINE_BYTES = 32 * 1024 * 1024


class LineSplitter:
    """Cuts a stream of chunks at newlines; blank lines are none, unless it is verbatim: then a line is all between two.

    A line over the limit is given out in pieces of that length, so that one long line costs neither the bytes in it nor
    the lines after it, and memory stays bounded.

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
        # Bytes already searched are not searched again: a slow 100 MB line stays linear.
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
        """What came after the last newline: a torn line, at the end of a stream."""
        rest, self._open, self._open_bytes = b"".join(self._open), [], 0
        return rest

    def _grow(self, more: bytes) -> list[bytes]:
        """Adds to the open line, and gives out what is over the limit."""
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
