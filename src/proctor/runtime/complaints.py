"""The lines of an agent that speaks no protocol; those that one secret may be spread over are one, to be recognised."""

from typing import Final

from proctor.evidence.needles import may_go_on
from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter

MAX_JOINED_BYTES: Final = 64 * 1024


class Complaints:
    """Bytes in, lines out. A line that base64 or a private key may go on after is held until the next one is there.

    >>> complaints = Complaints()
    >>> complaints.feed(b"ERROR one\\n-----BEGIN PRIVATE KEY-----\\n"), complaints.feed(b"MIIE\\nERR")
    ([b'ERROR one'], [b'-----BEGIN PRIVATE KEY-----\\nMIIE'])
    >>> complaints.rest()
    [b'ERR']
    """

    def __init__(self, *, is_verbatim: bool = False) -> None:
        self._splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES, is_verbatim=is_verbatim)
        self._held: list[bytes] = []
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        lines: list[bytes] = []
        for line in self._splitter.feed(chunk):
            self._held.append(line)
            self._held_bytes += len(line)
            if self._held_bytes > MAX_JOINED_BYTES or not may_go_on(line):
                lines += self._let_go()
        return lines

    def rest(self) -> list[bytes]:
        """What nothing came after."""
        if (torn := self._splitter.rest()).strip():
            self._held.append(torn)
        return self._let_go()

    def _let_go(self) -> list[bytes]:
        held, self._held, self._held_bytes = self._held, [], 0
        return [b"\n".join(held)] if held else []
