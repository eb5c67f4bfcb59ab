"""The strict reader: gives every row that is good and says of every line it skips where and why."""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from proctor.errors import EvidenceError
from proctor.event.row import GENESIS
from proctor.evidence.artifacts import StreamHead
from proctor.evidence.disk import open_regular, unreadable
from proctor.protocol import lines

T = TypeVar("T")

# Room for the longest line an agent may say with every byte of it escaped.
MAX_LINE_BYTES = 8 * lines.MAX_LINE_BYTES
MAX_ARTIFACT_BYTES = 64 * 1024 * 1024
MAX_PROBLEMS = 1000
"""After so many bad lines a stream is no stream, and the rest of it is not read."""
_CHUNK_BYTES = 1024 * 1024


class Problem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing wrong with a piece of evidence: a code of errors.CODES, and where."""

    code: str
    file: str
    line: int | None = None
    detail: str = ""

    @classmethod
    def of(cls, error: EvidenceError) -> "Problem":
        return cls(code=error.code, file=error.file or "", line=error.line, detail=error.what)


class _Link(msgspec.Struct, frozen=True):
    """What every chained row has, whatever else it has."""

    seq: int
    prev: str


_read_link = msgspec.json.Decoder(_Link).decode
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Reading(Generic[T]):
    """One stream, read a line at a time. `problems` and `head` are complete when the iteration is."""

    def __init__(self, path: Path, type_: Any, *, limit_bytes: int) -> None:
        self._path = path
        self._decode = msgspec.json.Decoder(type_).decode
        self._takes_link = isinstance(type_, type) and {"seq", "prev"} <= set(getattr(type_, "__struct_fields__", ()))
        self._limit_bytes = limit_bytes
        self._problems: list[Problem] = []
        self._lines = 0
        self._prev = GENESIS

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems)

    @property
    def head(self) -> StreamHead:
        """Of the lines as they stand in the file, good or not; a torn one does not count."""
        return StreamHead(rows=self._lines, head=self._prev)

    def __iter__(self) -> Iterator[T]:
        self._problems, self._lines, self._prev = [], 0, GENESIS
        try:
            with open_regular(self._path) as file:
                while line := file.readline(self._limit_bytes + 1):
                    if len(self._problems) >= MAX_PROBLEMS:
                        self._note("evidence.unreadable", "the rest is not read", line=self._lines + 1)
                        return
                    if line.endswith(b"\n"):
                        yield from self._row(line[:-1])
                    elif len(line) <= self._limit_bytes:
                        self._note("evidence.torn", f"{len(line)} bytes without a newline", line=self._lines + 1)
                    else:
                        self._skip_long(line, file)
        except EvidenceError as error:
            self._problems.append(Problem.of(error))
        except OSError as error:
            self._problems.append(Problem.of(unreadable(error, path=self._path)))

    def _row(self, line: bytes) -> Iterator[T]:
        number, due = self._lines + 1, self._prev
        self._lines, self._prev = number, hashlib.sha256(line).hexdigest()[:32]
        try:
            line.decode()  # the decoder does not look inside what it passes over
            link = _read_link(line)
            row: T = self._decode(line if self._takes_link else _without_link(line))
        except msgspec.ValidationError as error:
            self._note("evidence.schema", str(error), line=number)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._note("evidence.syntax", str(error), line=number)
        except RecursionError:
            self._note("evidence.schema", "nested too deep", line=number)
        else:
            # The row is given all the same: what is in doubt is the line before it, or one that is gone.
            if link.prev != due:
                self._note("evidence.chain", "the line before is not the one this row was written after", line=number)
            elif link.seq != number:
                self._note("evidence.chain", f"this row has the number {link.seq}", line=number)
            yield row

    def _skip_long(self, start: bytes, file: io.BufferedReader) -> None:
        """Past the end of a line too long to hold, hashing it, so that the chain still reaches the next one."""
        sha256, held = hashlib.sha256(), start
        while held and not held.endswith(b"\n"):
            sha256.update(held)
            held = file.readline(_CHUNK_BYTES)
        if not held:
            self._note("evidence.torn", f"over {self._limit_bytes} bytes without a newline", line=self._lines + 1)
            return
        sha256.update(held[:-1])
        self._lines, self._prev = self._lines + 1, sha256.hexdigest()[:32]
        self._note("evidence.syntax", f"a line of over {self._limit_bytes} bytes", line=self._lines)

    def _note(self, code: str, detail: str, *, line: int) -> None:
        self._problems.append(Problem(code=code, file=self._path.name, line=line, detail=detail))


def _without_link(line: bytes) -> bytes:
    fields = _read_fields(line)
    del fields["seq"], fields["prev"]
    return msgspec.json.encode(fields)


def read_rows(path: Path, type_: type[T], *, limit_bytes: int = MAX_LINE_BYTES) -> Reading[T]:
    """A stream's rows, lazily; never raises for anything the file holds, or is.

    A type with fields `seq` and `prev` gets them; any other is what the row was before it was chained.
    """
    return Reading(path, type_, limit_bytes=limit_bytes)


def read_artifact(path: Path, type_: type[T]) -> T:
    """A JSON file of an attempt as its struct, or an EvidenceError."""
    data = read_bytes(path)
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.ValidationError, RecursionError) as error:
        raise EvidenceError("evidence.schema", str(error), file=path.name) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EvidenceError("evidence.syntax", str(error), file=path.name) from error


def read_bytes(path: Path, *, limit_bytes: int = MAX_ARTIFACT_BYTES) -> bytes:
    """A whole file, or an EvidenceError."""
    try:
        with open_regular(path) as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        raise unreadable(error, path=path) from error
    if len(data) > limit_bytes:
        raise EvidenceError("evidence.schema", f"over {limit_bytes} bytes", file=path.name)
    return data
