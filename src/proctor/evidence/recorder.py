"""Writes streams of evidence: rows are redacted, chained and on disk before anything else sees them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from proctor import decoding
from proctor.clock import Clock
from proctor.errors import MachineError
from proctor.event.row import Direction, Row, SupervisorRow, TailReleased
from proctor.evidence.artifacts import SealedFile, StreamHead
from proctor.evidence.chain import ChainHead, chain_rows
from proctor.evidence.disk import AppendOnly
from proctor.evidence.redact import RedactedLine, Redactor, TextStream

# Decoders give up at a depth that depends on the caller's stack. This bound is the same for every reader.
_MAX_DEPTH = 128

_LINE = b'{"seq":%d,"atMs":%d,"dir":"%b","prev":"%b","%b":%b%b}'

_decode = decoding.json_decoder()
_encode = msgspec.json.encode


class _Stream:
    """A chained file that is being written. Without a path, rows are chained but not stored.

    Lines that contain the `forbidden` bytes are refused.
    """

    def __init__(self, path: Path | None, *, forbidden: bytes = b"") -> None:
        self._file = AppendOnly(path)
        self._head = ChainHead()
        self._forbidden = forbidden

    @property
    def head(self) -> StreamHead:
        """The end of the rows that were written. Staged rows do not count."""
        return StreamHead(rows=self._head.rows, head=self._head.prev)

    @property
    def file(self) -> SealedFile:
        """Digest and size of the bytes that were written, for the seal."""
        return SealedFile(sha256=self._file.sha256, bytes=self._file.size_bytes)

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def _append(self, lines: bytes, *, head: ChainHead) -> None:
        """Write complete lines, after which the chain is at `head`. Raises MachineError if the disk refuses."""
        if self._forbidden and self._forbidden in lines:
            raise MachineError(
                "run.redaction", "the planted tripwire was about to be written unmasked", file=str(self._file.path)
            )
        self._file.append(lines)
        self._head = head

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ChainedLog(_Stream):
    """A stream of Proctor's own rows. The trace and the transcript derive from redacted frames and need no redactor."""

    def __init__(self, path: Path | None, *, redactor: Redactor | None = None, forbidden: bytes = b"") -> None:
        super().__init__(path, forbidden=forbidden)
        self._redactor = redactor

    def append(self, rows: Iterable[Any]) -> None:
        """Write rows (structs or mappings) in one write. Raises MachineError if the disk refuses."""
        if self._redactor is not None:
            rows = map(self._redactor.value, rows)
        head = ChainHead(self._head.rows, self._head.prev)
        if data := chain_rows(rows, head=head):
            self._append(data, head=head)


class FrameLog(_Stream):
    """frames.jsonl of one attempt or of one agent process."""

    def __init__(self, path: Path | None, *, redactor: Redactor, clock: Clock, forbidden: bytes = b"") -> None:
        super().__init__(path, forbidden=forbidden)
        self._redactor = redactor
        self._clock = clock
        self._staged: list[tuple[int, Direction]] = []
        self._raw: list[tuple[bytes, TextStream | None]] = []
        self._redacted: list[RedactedLine] = []
        self._unread: list[Row] = []
        self._counts: Counter[Direction] = Counter()

    @property
    def counts(self) -> Mapping[Direction, int]:
        """Number of rows written, by direction."""
        return self._counts

    def stage(self, dir: Direction, data: bytes, *, stream: TextStream | None = None) -> None:  # noqa: A002
        """Stage one line, without its newline, for the next commit. `stream` names the text that it is a piece of."""
        self._staged.append((self._clock.wall_ms(), dir))
        self._raw.append((data, stream))

    def commit(self) -> tuple[Row, ...]:
        """Write everything staged in one write. Return the rows not returned before, exactly as recorded."""
        self._write()
        rows, self._unread = tuple(self._unread), []
        return rows

    def say(self, seen: SupervisorRow) -> Row:
        """Write a `self` row at once and return it. Staged lines are written first; the next commit returns them."""
        self.stage(Direction.SELF, _encode(seen))
        self._write()
        return self._unread.pop()

    def release(self, key_prefix: str = "") -> tuple[Row, ...]:
        """End the text streams whose key has this prefix. Text that redaction held back becomes `self` rows.

        If no such stream is open, staged lines stay staged.
        """
        staged = (stream.key for _, stream in self._raw if stream is not None)
        if not any(key.startswith(key_prefix) for key in (*self._redactor.open_streams(), *staged)):
            return ()
        self._redact()
        is_released = False
        for key in self._redactor.open_streams():
            if key.startswith(key_prefix) and (tail := self._redactor.finish(key)) is not None:
                raw = _encode(TailReleased(stream=self._redactor.text(key).text, text=tail.text))
                # Already redacted. Redacting a tail again could only mask it by mistake.
                self._staged.append((self._clock.wall_ms(), Direction.SELF))
                self._redacted.append(RedactedLine(raw=raw, names=tail.names, carried=False))
                is_released = True
        return self.commit() if is_released else ()

    def close(self) -> None:
        try:
            if not self._file.is_broken:
                self._write()
        finally:
            super().close()

    def _redact(self) -> None:
        """Redact all staged lines together, so that a batch without a secret costs one search."""
        raw, self._raw = self._raw, []
        self._redacted += self._redactor.lines(raw)

    def _write(self) -> None:
        if not self._staged:
            return
        self._redact()
        staged, self._staged = self._staged, []
        redacted, self._redacted = self._redacted, []
        head = ChainHead(self._head.rows, self._head.prev)
        lines: list[bytes] = []
        rows: list[Row] = []
        for (at_ms, dir_), redacted_line in zip(staged, redacted, strict=True):
            row, line = _render(redacted_line, head=head, at_ms=at_ms, dir_=dir_)
            head.advance(line)
            rows.append(row)
            lines.append(line)
        lines.append(b"")
        self._append(b"\n".join(lines), head=head)
        self._unread += rows
        for _, dir_ in staged:
            self._counts[dir_] += 1


def _render(redacted: RedactedLine, *, head: ChainHead, at_ms: int, dir_: Direction) -> tuple[Row, bytes]:
    """Return a row and its line. Formatted by hand, because an encoder would copy and check the frame once more."""
    seq, prev, names, carried = head.rows + 1, head.prev, redacted.names, redacted.carried
    raw = redacted.raw.strip(b" \t\r\n")
    if _is_json(raw):
        kind = b"frame"
        # In JSON a bare line end is white space. Here it would end the row; for some readers `\r` would too.
        raw = raw.replace(b"\n", b" ").replace(b"\r", b" ")
        row = Row(seq=seq, at_ms=at_ms, dir=dir_, prev=prev, frame=msgspec.Raw(raw), redacted=names, carried=carried)
    else:
        kind = b"text"
        text = redacted.raw.removesuffix(b"\r").decode(errors="replace")
        raw = _encode(text)
        row = Row(seq=seq, at_ms=at_ms, dir=dir_, prev=prev, text=text, redacted=names, carried=carried)
    marks = _marks(names, carried=carried) if names or carried else b""
    return row, _LINE % (seq, at_ms, dir_.encode(), prev.encode(), kind, raw, marks)


def _marks(names: tuple[str, ...], *, carried: bool) -> bytes:
    redacted = b',"redacted":' + _encode(names) if names else b""
    return redacted + (b',"carried":true' if carried else b"")


def _is_json(raw: bytes) -> bool:
    """Whether every reader accepts it as JSON: well-formed, UTF-8, numbers that fit, not nested too deeply."""
    try:
        value = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    is_flat = len(raw) < 2 * _MAX_DEPTH or raw.count(b"[") + raw.count(b"{") < _MAX_DEPTH
    return is_flat or not _is_deep(value)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, (list, dict))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
