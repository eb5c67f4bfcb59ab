"""Digests of evidence: of files, and of the records that contain their own."""

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from proctor import canonical, decoding
from proctor.errors import EvidenceError, MachineError
from proctor.evidence.artifacts import ProcessRecord, Seal, SealedFile
from proctor.evidence.disk import open_descriptor, read_chunks
from proctor.evidence.layout import SEALED, STREAMS, is_probe_file, render_artifact
from proctor.evidence.reader import read_bytes, refuse_other_version

Stamped = TypeVar("Stamped", Seal, ProcessRecord)

# ── of a record that contains its own ──


def stamp(draft: Stamped) -> Stamped:
    """Return the record with its own digest in `sha256`."""
    return msgspec.structs.replace(draft, sha256=_own_digest(draft))


def load_seal(read: Callable[[], bytes], *, file: str) -> Seal:
    """Return the seal in the content that `read` returns. Raises EvidenceError like `load_stamped`."""
    seal = load_stamped(read, Seal, file=file)
    others = seal.files.keys() - set(SEALED)
    if not set(SEALED) <= seal.files.keys() or not all(map(is_probe_file, others)) or set(seal.streams) != set(STREAMS):
        raise EvidenceError("evidence.seal", "the files that it names are not those of an attempt", file=file)
    return seal


def read_stamped(path: Path, type_: type[Stamped]) -> Stamped:
    """Read a record that contains its own digest. Raises EvidenceError like `load_stamped`."""
    return load_stamped(partial(read_bytes, path), type_, file=path.name)


def load_stamped(read: Callable[[], bytes], type_: type[Stamped], *, file: str) -> Stamped:
    """Return the record in the content that `read` returns.

    Raises EvidenceError if it is absent (`evidence.partial`), cannot be read, or differs from its digest in any byte.
    """
    data = b""
    try:
        data = read()
        record = decoding.decode(data, type_)
        # The digest covers the value. Comparing the bytes too detects a changed space or a duplicate key.
        is_unchanged = record.sha256 == _own_digest(record) and data == render_artifact(record)
    except EvidenceError as error:
        if error.code == "evidence.missing-file":
            raise EvidenceError("evidence.partial", "no seal", file=file) from error
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refuse_other_version(data, file=file)
        raise EvidenceError("evidence.seal", str(error), file=file) from error
    if not is_unchanged:
        raise EvidenceError("evidence.seal", "its content does not match its own sha256", file=file)
    return record


def _own_digest(record: Seal | ProcessRecord) -> str:
    value = msgspec.to_builtins(record)
    del value["sha256"]
    return canonical.digest(value).removeprefix("sha256:")


# ── of a file ──


def measure(path: Path, *, forbidden: bytes = b"") -> SealedFile:
    """Return the digest and size of a file.

    Raises EvidenceError if it cannot be read, and MachineError if it contains the `forbidden` bytes.
    """
    fd = open_descriptor(path)
    try:
        return measure_descriptor(fd, file=str(path), forbidden=forbidden)
    finally:
        os.close(fd)


def measure_descriptor(fd: int, *, file: str, forbidden: bytes = b"") -> SealedFile:
    """Return the digest and size of an open file. Raises like `measure`."""
    sha256, size_bytes, before = hashlib.sha256(), 0, b""
    for chunk in read_chunks(fd, file=file):
        sha256.update(chunk)
        size_bytes += len(chunk)
        _refuse_forbidden(forbidden, before + chunk, file=file)
        before = chunk[1 - len(forbidden) :] if forbidden else b""
    return SealedFile(sha256=sha256.hexdigest(), bytes=size_bytes)


def measure_bytes(data: bytes, *, file: str, forbidden: bytes = b"") -> SealedFile:
    """Return the digest and size of bytes that were just written. Raises MachineError like `measure`."""
    _refuse_forbidden(forbidden, data, file=file)
    return SealedFile(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


def _refuse_forbidden(forbidden: bytes, data: bytes, *, file: str) -> None:
    if forbidden and forbidden in data:
        raise MachineError("run.redaction", "the planted tripwire was written unmasked", file=file)
