"""Split plain text output into lines. Lines over which one secret may extend stay together, so it can be masked."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from proctor.evidence.needles import may_continue
from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter
from proctor.transport.tree import ExitStatus

MAX_JOINED_BYTES: Final = 64 * 1024
_MAX_LAST_LINES: Final = 5
_MAX_LAST_CHARS: Final = 800


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
        self.last: deque[bytes] = deque(maxlen=_MAX_LAST_LINES)
        """The last lines that were returned, to explain an end."""

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
        lines = [b"\n".join(pending)] if pending else []
        self.last += lines
        return lines


def describe_end(cause: str, status: ExitStatus | None, stderr: Iterable[bytes]) -> str:
    r"""Return why nothing more can arrive from a process, with its exit status and its last lines of stderr.

    >>> describe_end("the agent closed its output", ExitStatus(code=3), [b"error: no config"])
    "the agent closed its output; it exited with status 3; last lines of stderr: 'error: no config'"
    """
    parts = [cause]
    if status is not None:
        how = f"exited with status {status.code}" if status.signal is None else f"was ended by signal {status.signal}"
        parts.append(f"it {how}")
    text = "\n".join(line.decode(errors="replace") for line in stderr).strip()
    if text:
        parts.append(f"last lines of stderr: {text[-_MAX_LAST_CHARS:]!r}")
    return "; ".join(parts)
