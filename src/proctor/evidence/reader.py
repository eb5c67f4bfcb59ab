"""The strict reader of evidence: yields every valid row, and reports every line that it skips."""

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from proctor import decoding
from proctor.errors import EvidenceError
from proctor.event.row import GENESIS
from proctor.evidence.artifacts import SCHEMA_VERSION, StreamHead
from proctor.evidence.disk import open_descriptor, open_regular, read_start, unreadable
from proctor.protocol import lines

T = TypeVar("T")

MAX_LINE_BYTES = 8 * lines.MAX_LINE_BYTES
"""Room for the longest line that an agent may send, with every byte of it escaped."""
MAX_ARTIFACT_BYTES = 64 * 1024 * 1024
MAX_FINDINGS = 1000
"""Reading of a stream stops after this many findings."""
_CHUNK_BYTES = 1024 * 1024


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that is wrong with a piece of evidence."""

    code: str
    """Error code, one of `errors.CODES`."""
    file: str
    """File or folder, relative to what was checked. Empty if it is not about a file."""
    line: int | None = None
    """Line in the file, counted from 1. Absent if it is not about a line."""
    detail: str = ""
    """Explanation in words."""

    @classmethod
    def of(cls, error: EvidenceError) -> "Finding":
        """Convert an error into a finding."""
        return cls(code=error.code, file=error.file or "", line=error.line, detail=error.what)


class _Link(msgspec.Struct, frozen=True):
    """The fields that every chained row has."""

    seq: int
    prev: str


class _Versioned(msgspec.Struct, frozen=True, rename="camel"):
    """The field that every versioned file has."""

    schema_version: Any = SCHEMA_VERSION


_read_link = decoding.json_decoder(_Link)
_read_fields = decoding.json_decoder(dict[str, msgspec.Raw])


class Reading(Generic[T]):
    """A stream that is read one line at a time. `findings` and `head` are complete after the iteration."""

    def __init__(
        self,
        path: Path,
        type_: Any,
        *,
        limit_bytes: int = MAX_LINE_BYTES,
        open_file: Callable[[Path], io.BufferedReader] = open_regular,
    ) -> None:
        self._path = path
        self._open_file = open_file
        self._decode = decoding.json_decoder(type_)
        self._takes_link = isinstance(type_, type) and {"seq", "prev"} <= set(getattr(type_, "__struct_fields__", ()))
        self._limit_bytes = limit_bytes
        self._findings: list[Finding] = []
        self._lines = 0
        self._prev = GENESIS

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._findings)

    @property
    def head(self) -> StreamHead:
        """The end of the chain over all lines read so far, valid or not. A torn last line does not count."""
        return StreamHead(rows=self._lines, head=self._prev)

    def __iter__(self) -> Iterator[T]:
        self._findings, self._lines, self._prev = [], 0, GENESIS
        try:
            with self._open_file(self._path) as file:
                while line := file.readline(self._limit_bytes + 1):
                    if len(self._findings) >= MAX_FINDINGS:
                        self._note(
                            "evidence.unreadable",
                            f"not read from here on, after {MAX_FINDINGS} findings",
                            line=self._lines + 1,
                        )
                        return
                    if line.endswith(b"\n"):
                        yield from self._row(line[:-1])
                    elif len(line) <= self._limit_bytes:
                        self._note("evidence.torn", f"{len(line)} bytes without a newline", line=self._lines + 1)
                    else:
                        self._skip_long(line, file)
        except EvidenceError as error:
            self._findings.append(Finding.of(error))
        except OSError as error:
            self._findings.append(Finding.of(unreadable(error, path=self._path)))

    def _row(self, line: bytes) -> Iterator[T]:
        number, expected_prev = self._lines + 1, self._prev
        self._lines, self._prev = number, hashlib.sha256(line).hexdigest()[:32]
        try:
            line.decode()  # the decoder does not check the UTF-8 of values that it skips
            link = _read_link(line)
            row: T = self._decode(line if self._takes_link else _without_link(line))
        except msgspec.ValidationError as error:
            self._note("evidence.schema", str(error), line=number)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._note("evidence.syntax", str(error), line=number)
        except RecursionError:
            self._note("evidence.schema", "nested too deeply", line=number)
        else:
            # The row is yielded in any case: in doubt is the line before it, or one that is missing.
            if link.prev != expected_prev:
                self._note("evidence.chain", "`prev` is not the digest of the line before", line=number)
            elif link.seq != number:
                self._note("evidence.chain", f"`seq` is {link.seq}, expected {number}", line=number)
            yield row

    def _skip_long(self, start: bytes, file: io.BufferedReader) -> None:
        """Skip a line that is too long, hashing it, so that the chain continues at the next line."""
        sha256, chunk = hashlib.sha256(), start
        while chunk and not chunk.endswith(b"\n"):
            sha256.update(chunk)
            chunk = file.readline(_CHUNK_BYTES)
        if not chunk:
            self._note("evidence.torn", f"more than {self._limit_bytes} bytes without a newline", line=self._lines + 1)
            return
        sha256.update(chunk[:-1])
        self._lines, self._prev = self._lines + 1, sha256.hexdigest()[:32]
        self._note("evidence.syntax", f"the line is longer than {self._limit_bytes} bytes", line=self._lines)

    def _note(self, code: str, detail: str, *, line: int) -> None:
        self._findings.append(Finding(code=code, file=self._path.name, line=line, detail=detail))


def _without_link(line: bytes) -> bytes:
    fields = _read_fields(line)
    del fields["seq"], fields["prev"]
    return msgspec.json.encode(fields)


def read_rows(path: Path, type_: type[T], *, limit_bytes: int = MAX_LINE_BYTES) -> Reading[T]:
    """Read the rows of a stream lazily. Never raises for the content or the kind of the file.

    A struct with fields `seq` and `prev` gets them; for any other type they are removed before decoding.
    """
    return Reading(path, type_, limit_bytes=limit_bytes)


def read_artifact(path: Path, type_: type[T]) -> T:
    """Read a JSON file as a struct. Raises EvidenceError if it cannot be read or does not fit."""
    return decode_artifact(read_bytes(path), type_, file=path.name)


def decode_artifact(data: bytes, type_: type[T], *, file: str) -> T:
    """Decode the content of a JSON file. Raises EvidenceError if it does not fit."""
    try:
        return decoding.decode(data, type_)
    except (msgspec.ValidationError, RecursionError) as error:
        refuse_other_version(data, file=file)
        raise EvidenceError("evidence.schema", str(error), file=file) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EvidenceError("evidence.syntax", str(error), file=file) from error


def refuse_other_version(data: bytes, *, file: str) -> None:
    """Raise EvidenceError if a JSON file states another version of its format than the one that this Proctor reads."""
    try:
        version = decoding.decode(data, _Versioned).schema_version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if version != SCHEMA_VERSION:
        what = f"schemaVersion is {version!r}; this Proctor reads only {SCHEMA_VERSION}"
        raise EvidenceError("evidence.version", what, file=file)


def read_bytes(path: Path, *, limit_bytes: int = MAX_ARTIFACT_BYTES) -> bytes:
    """Read a whole file. Raises EvidenceError if it cannot be read or is larger than the limit."""
    fd = open_descriptor(path)
    try:
        return read_whole(fd, file=path.name, limit_bytes=limit_bytes)
    finally:
        os.close(fd)


def read_whole(fd: int, *, file: str, limit_bytes: int = MAX_ARTIFACT_BYTES) -> bytes:
    """Read the whole content of an open file. Raises EvidenceError like `read_bytes`."""
    data = read_start(fd, size_bytes=limit_bytes + 1, file=file)
    if len(data) > limit_bytes:
        raise EvidenceError("evidence.schema", f"larger than {limit_bytes} bytes", file=file)
    return data
