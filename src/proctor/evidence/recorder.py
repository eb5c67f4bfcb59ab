"""The recorder: what was said stands on disk, redacted and chained, before anybody reads it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from proctor.clock import Clock
from proctor.errors import MachineError
from proctor.event.row import Dir, Row, Seen, TailReleased
from proctor.evidence.artifacts import SealedFile, StreamHead
from proctor.evidence.chain import ChainHead, chain_rows
from proctor.evidence.disk import AppendOnly
from proctor.evidence.redact import RedactedLine, Redactor, TextStream

# Decoders give up at a depth that hangs on the caller's own stack; this bound is the same for every reader.
_MAX_DEPTH = 128

_LINE = b'{"seq":%d,"atMs":%d,"dir":"%b","prev":"%b","%b":%b%b}'

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.encode


class _Stream:
    """A chained file that is being written; without a path it is chained all the same, and not kept.

    Lines that hold the bytes that are to stay `unsaid` are refused.
    """

    def __init__(self, path: Path | None, *, unsaid: bytes = b"") -> None:
        self._file = AppendOnly(path)
        self._head = ChainHead()
        self._unsaid = unsaid

    @property
    def head(self) -> StreamHead:
        """Of what was written, not of what is staged."""
        return StreamHead(rows=self._head.rows, head=self._head.prev)

    @property
    def file(self) -> SealedFile:
        """As a seal names it: of what was written, too."""
        return SealedFile(sha256=self._file.sha256, bytes=self._file.size_bytes)

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def _append(self, lines: bytes, *, head: ChainHead) -> None:
        """Whole lines, after which the chain stands at `head`."""
        if self._unsaid and self._unsaid in lines:
            raise MachineError(
                "run.redaction", "the planted canary was about to be written as it is", file=str(self._file.path)
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
    """A stream of our own rows. Those of a fold (trace, transcript) come from redacted frames and need no redactor."""

    def __init__(self, path: Path | None, *, redactor: Redactor | None = None, unsaid: bytes = b"") -> None:
        super().__init__(path, unsaid=unsaid)
        self._redactor = redactor

    def append(self, rows: Iterable[Any]) -> None:
        """Structs or mappings, all in one write."""
        if self._redactor is not None:
            rows = map(self._redactor.value, rows)
        head = ChainHead(self._head.rows, self._head.prev)
        if data := chain_rows(rows, head=head):
            self._append(data, head=head)


class FrameLog(_Stream):
    """frames.jsonl of one attempt or of one runtime process."""

    def __init__(self, path: Path | None, *, redactor: Redactor, clock: Clock, unsaid: bytes = b"") -> None:
        super().__init__(path, unsaid=unsaid)
        self._redactor = redactor
        self._clock = clock
        self._staged: list[tuple[int, Dir]] = []
        self._said: list[tuple[bytes, TextStream | None]] = []
        self._redacted: list[RedactedLine] = []
        self._unread: list[Row] = []
        self._counts: Counter[Dir] = Counter()

    @property
    def counts(self) -> Mapping[Dir, int]:
        """Rows written, by who spoke."""
        return self._counts

    def stage(self, dir: Dir, data: bytes, *, stream: TextStream | None = None) -> None:  # noqa: A002
        """One line without its newline, to be written by the next commit. `stream` names the text it is a piece of."""
        self._staged.append((self._clock.wall_ms(), dir))
        self._said.append((data, stream))

    def commit(self) -> tuple[Row, ...]:
        """Everything staged, in one write. Gives back, exactly as recorded, the rows nobody was given yet."""
        self._write()
        rows, self._unread = tuple(self._unread), []
        return rows

    def say(self, seen: Seen) -> Row:
        """A `self` row, written at once. What was staged goes before it, and is given out by the next commit."""
        self.stage(Dir.SELF, _encode(seen))
        self._write()
        return self._unread.pop()

    def release(self, key_prefix: str = "") -> tuple[Row, ...]:
        """End the text streams whose key begins so: what redaction still holds of them becomes `self` rows.

        Where it holds nothing, what was staged stays so.
        """
        staged = (stream.key for _, stream in self._said if stream is not None)
        if not any(key.startswith(key_prefix) for key in (*self._redactor.open_streams(), *staged)):
            return ()
        self._redact()
        is_released = False
        for key in self._redactor.open_streams():
            if key.startswith(key_prefix) and (tail := self._redactor.finish(key)) is not None:
                said = _encode(TailReleased(stream=self._redactor.text(key).text, text=tail.text))
                # Redacted already, and whole: redacting a tail again could only mistake it for something else.
                self._staged.append((self._clock.wall_ms(), Dir.SELF))
                self._redacted.append(RedactedLine(raw=said, names=tail.names, carried=False))
                is_released = True
        return self.commit() if is_released else ()

    def close(self) -> None:
        try:
            if not self._file.is_broken:
                self._write()
        finally:
            super().close()

    def _redact(self) -> None:
        """All that was staged together, so that a batch without a secret costs one look at its bytes."""
        said, self._said = self._said, []
        self._redacted += self._redactor.lines(said)

    def _write(self) -> None:
        if not self._staged:
            return
        self._redact()
        staged, self._staged = self._staged, []
        redacted, self._redacted = self._redacted, []
        head = ChainHead(self._head.rows, self._head.prev)
        lines: list[bytes] = []
        rows: list[Row] = []
        for (at_ms, dir_), said in zip(staged, redacted, strict=True):
            row, line = _render(said, head=head, at_ms=at_ms, dir_=dir_)
            head.advance(line)
            rows.append(row)
            lines.append(line)
        lines.append(b"")
        self._append(b"\n".join(lines), head=head)
        self._unread += rows
        for _, dir_ in staged:
            self._counts[dir_] += 1


def _render(said: RedactedLine, *, head: ChainHead, at_ms: int, dir_: Dir) -> tuple[Row, bytes]:
    """A row and its line, spelled by hand: an encoder would copy and check the frame once more."""
    seq, prev, names, carried = head.rows + 1, head.prev, said.names, said.carried
    raw = said.raw.strip(b" \t\r\n")
    if _is_json(raw):
        kind = b"frame"
        # In JSON a bare line end is only ever white space; here it would end the row, for some readers a `\r` too.
        raw = raw.replace(b"\n", b" ").replace(b"\r", b" ")
        row = Row(seq=seq, at_ms=at_ms, dir=dir_, prev=prev, frame=msgspec.Raw(raw), redacted=names, carried=carried)
    else:
        kind = b"text"
        text = said.raw.removesuffix(b"\r").decode(errors="replace")
        raw = _encode(text)
        row = Row(seq=seq, at_ms=at_ms, dir=dir_, prev=prev, text=text, redacted=names, carried=carried)
    marks = _marks(names, carried=carried) if names or carried else b""
    return row, _LINE % (seq, at_ms, dir_.encode(), prev.encode(), kind, raw, marks)


def _marks(names: tuple[str, ...], *, carried: bool) -> bytes:
    redacted = b',"redacted":' + _encode(names) if names else b""
    return redacted + (b',"carried":true' if carried else b"")


def _is_json(raw: bytes) -> bool:
    """Whether any reader can take it for a JSON value: well-formed, in UTF-8, of numbers that fit, not too deep."""
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
