"""Split plain text output into lines. Lines over which one secret may extend stay together, so it can be masked."""

from typing import Final

from proctor.evidence.needles import may_continue
from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter

MAX_JOINED_BYTES: Final = 64 * 1024


class StderrLines:
    """Collects bytes into lines. A line that base64 or a private key may continue is joined with the next line.

    >>> stderr = StderrLines()
    >>> stderr.feed(b"ERROR one\\n-----BEGIN PRIVATE KEY-----\\n"), stderr.feed(b"MIIE\\nERR")
    ([b'ERROR one'], [b'-----BEGIN PRIVATE KEY-----\\nMIIE'])
    >>> stderr.rest()
    [b'ERR']
    """

    def __init__(self, *, is_verbatim: bool = False) -> None:
        self._splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES, is_verbatim=is_verbatim)
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        lines: list[bytes] = []
        for line in self._splitter.feed(chunk):
            self._pending.append(line)
            self._pending_bytes += len(line)
            if self._pending_bytes > MAX_JOINED_BYTES or not may_continue(line):
                lines += self._flush()
        return lines

    def rest(self) -> list[bytes]:
        """Return what is left at the end of the output."""
        if (partial := self._splitter.rest()).strip():
            self._pending.append(partial)
        return self._flush()

    def _flush(self) -> list[bytes]:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        return [b"\n".join(pending)] if pending else []
