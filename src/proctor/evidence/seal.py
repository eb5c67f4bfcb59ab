"""Seals: digest and size of every file of an attempt. An attempt is complete when it has a seal."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from proctor import canonical
from proctor.clock import Clock
from proctor.errors import EvidenceError, MachineError
from proctor.evidence.artifacts import ProcessRecord, Seal, SealedFile, StreamHead
from proctor.evidence.disk import draft_path, open_descriptor, sync_file, sync_folder, unreadable
from proctor.evidence.layout import (
    SEAL,
    SEAL_SIGNATURE,
    SEALED,
    STREAMS,
    AttemptPaths,
    RuntimePaths,
    render_artifact,
    write_artifact,
)
from proctor.evidence.reader import Finding, read_bytes
from proctor.evidence.redact import Redactor
from proctor.ids import AttemptId

Stamped = TypeVar("Stamped", Seal, ProcessRecord)

_CHUNK_BYTES = 64 * 1024
_NOTHING: Mapping[str, SealedFile] = {}


def build_seal(
    paths: AttemptPaths,
    *,
    attempt_id: AttemptId,
    clock: Clock,
    streams: Mapping[str, StreamHead],
    forbidden: bytes = b"",
    known: Mapping[str, SealedFile] = _NOTHING,
) -> Seal:
    """Build the seal of an attempt's folder as it is now. Its files need not be durable yet.

    `streams` are the ends of the streams as the recorder has them in memory, and `known` the digests of files as they
    were written. So a file that was altered on disk before the seal does not match it. The other files are read.
    Raises EvidenceError if the folder is already sealed or has absent, extra or irregular files.
    Raises MachineError if one of the others contains the `forbidden` bytes.
    """
    if set(streams) != set(STREAMS):
        raise EvidenceError(
            "evidence.chain", f"stream heads given for {sorted(streams)}, expected {sorted(STREAMS)}", file=SEAL
        )
    entries = _entries(paths)
    if SEAL in entries:
        raise EvidenceError("evidence.seal", "the attempt is already sealed", file=SEAL)
    for finding in _unexpected_entries(entries, is_sealed=True):
        raise EvidenceError(finding.code, finding.detail, file=finding.file)
    if absent := [name for name in known if name not in entries]:
        raise EvidenceError("evidence.missing-file", "absent", file=absent[0])
    draft = Seal(
        attempt_id=attempt_id,
        sealed_at_ms=clock.wall_ms(),
        files={name: known.get(name) or measure(paths.folder / name, forbidden=forbidden) for name in SEALED},
        streams={name: streams[name] for name in STREAMS},
        sha256="",
    )
    return stamp(draft)


def write_seal(paths: AttemptPaths, sealed: Seal, *, is_durable: bool) -> None:
    """Write seal.json, which completes the attempt.

    With `is_durable=False` the caller must have synced every file that the seal names, and must sync the seal later.
    Raises MachineError if the disk refuses.
    """
    if is_durable:
        for name in SEALED:
            sync_file(paths.folder / name)
        # The folder is synced before the seal is written: a seal on disk must mean that the other files are there.
        sync_folder(paths.folder)
    write_artifact(paths.seal, sealed, redactor=None, is_durable=is_durable)
    if is_durable:
        sync_folder(paths.folder.parent)


def seal_process(paths: RuntimePaths, record: ProcessRecord, *, redactor: Redactor, is_durable: bool = True) -> None:
    """Write process.json, which completes the record of a runtime process. Its frames must be durable already."""
    # The digest covers the redacted record, so it is added after redaction.
    write_artifact(paths.record, stamp(redactor.value(record)), redactor=None, is_durable=is_durable)


def stamp(draft: Stamped) -> Stamped:
    """Return the record with its own digest in `sha256`."""
    return msgspec.structs.replace(draft, sha256=_own_digest(draft))


def read_seal(path: Path) -> Seal:
    """Read a seal. Raises EvidenceError if it is absent (`evidence.partial`) or does not match its own digest."""
    seal = read_stamped(path, Seal)
    if set(seal.files) != set(SEALED) or set(seal.streams) != set(STREAMS):
        raise EvidenceError("evidence.seal", "the files that it names are not those of an attempt", file=path.name)
    return seal


def read_stamped(path: Path, type_: type[Stamped]) -> Stamped:
    """Read a record that contains its own digest.

    Raises EvidenceError if it is absent (`evidence.partial`), cannot be read, or differs from its digest in any byte.
    """
    try:
        data = read_bytes(path)
        record = msgspec.json.decode(data, type=type_)
        # The digest covers the value. Comparing the bytes too detects a changed space or a duplicate key.
        is_unchanged = record.sha256 == _own_digest(record) and data == render_artifact(record)
    except EvidenceError as error:
        if error.code == "evidence.missing-file":
            raise EvidenceError("evidence.partial", "no seal", file=path.name) from error
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError("evidence.seal", str(error), file=path.name) from error
    if not is_unchanged:
        raise EvidenceError("evidence.seal", "its content does not match its own sha256", file=path.name)
    return record


def check_seal(paths: AttemptPaths) -> tuple[Finding, ...]:
    """Return everything in the folder that differs from the seal; nothing if it is intact."""
    try:
        entries = _entries(paths)
    except EvidenceError as error:
        return (Finding.of(error),)
    findings = list(_unexpected_entries(entries, is_sealed=SEAL in entries))
    seal = None
    if entries.get(SEAL, True):
        try:
            seal = read_seal(paths.seal)
        except EvidenceError as error:
            findings.append(Finding.of(error))
    for name in SEALED:
        # Without a seal the attempt was cut off, so an absent file is not a finding.
        if name not in entries and SEAL in entries:
            findings.append(Finding(code="evidence.missing-file", file=name, detail="absent"))
        if seal is not None and entries.get(name):
            findings.extend(_differences(paths.folder / name, sealed=seal.files[name]))
    return tuple(findings)


def _differences(path: Path, *, sealed: SealedFile) -> Iterator[Finding]:
    try:
        now = measure(path)
    except EvidenceError as error:
        yield Finding.of(error)
        return
    if now != sealed:
        detail = (
            "altered since it was sealed"
            if now.bytes == sealed.bytes
            else f"{now.bytes} bytes, but {sealed.bytes} were sealed"
        )
        yield Finding(code="evidence.digest", file=path.name, detail=detail)


def _entries(paths: AttemptPaths) -> dict[str, bool]:
    """Return the names in the folder, and whether each is a regular file. Raises EvidenceError."""
    folder = paths.folder
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise EvidenceError("evidence.containment", "not a folder", file=folder.name)
        with os.scandir(folder) as entries:
            return {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
    except FileNotFoundError as error:
        raise EvidenceError("evidence.not-found", "no such folder", file=folder.name) from error
    except OSError as error:
        raise unreadable(error, path=folder) from error


def _unexpected_entries(entries: Mapping[str, bool], *, is_sealed: bool) -> Iterator[Finding]:
    known = {SEAL, *SEALED}
    if not is_sealed:
        known |= {draft_path(Path(name)).name for name in known}  # left by writes that were cut off
    if SEAL in entries:
        known.add(SEAL_SIGNATURE)
    for name, is_file in sorted(entries.items()):
        if not is_file:
            yield Finding(code="evidence.containment", file=name, detail="not a regular file")
        elif name not in known:
            yield Finding(code="evidence.extra-file", file=name, detail="not a file of an attempt")


def measure(path: Path, *, forbidden: bytes = b"") -> SealedFile:
    """Return the digest and size of a file.

    Raises EvidenceError if it cannot be read, and MachineError if it contains the `forbidden` bytes.
    """
    fd = open_descriptor(path)
    sha256, size_bytes, before = hashlib.sha256(), 0, b""
    try:
        # Not hashlib.file_digest() or a buffered file: setting either up takes longer than reading a small file.
        while chunk := os.read(fd, _CHUNK_BYTES):
            sha256.update(chunk)
            size_bytes += len(chunk)
            _refuse_forbidden(forbidden, before + chunk, file=str(path))
            before = chunk[1 - len(forbidden) :] if forbidden else b""
    except OSError as error:
        raise unreadable(error, path=path) from error
    finally:
        os.close(fd)
    return SealedFile(sha256=sha256.hexdigest(), bytes=size_bytes)


def measure_bytes(data: bytes, *, file: str, forbidden: bytes = b"") -> SealedFile:
    """Return the digest and size of bytes that were just written. Raises MachineError like `measure`."""
    _refuse_forbidden(forbidden, data, file=file)
    return SealedFile(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


def _refuse_forbidden(forbidden: bytes, data: bytes, *, file: str) -> None:
    if forbidden and forbidden in data:
        raise MachineError("run.redaction", "the planted tripwire was written unmasked", file=file)


def _own_digest(record: Seal | ProcessRecord) -> str:
    value = msgspec.to_builtins(record)
    del value["sha256"]
    return canonical.digest(value).removeprefix("sha256:")
