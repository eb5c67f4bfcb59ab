"""The seal: the digest of every file of an attempt and of itself. An attempt is complete when it has one."""

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
from proctor.evidence.disk import beside, open_descriptor, sync_file, sync_folder, unreadable
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
from proctor.evidence.reader import Problem, read_bytes
from proctor.evidence.redact import Redactor
from proctor.ids import AttemptId

Stamped = TypeVar("Stamped", Seal, ProcessRecord)

_CHUNK_BYTES = 64 * 1024
_NOTHING: Mapping[str, SealedFile] = {}


def draw_up(
    paths: AttemptPaths,
    *,
    attempt_id: AttemptId,
    clock: Clock,
    streams: Mapping[str, StreamHead],
    unsaid: bytes = b"",
    known: Mapping[str, SealedFile] = _NOTHING,
) -> Seal:
    """The seal of what is in the folder now. What was written to it need not be durable yet.

    `streams` are the heads the recorder holds in memory: a stream altered before the seal is found when its chain
    is read and does not end there. So is a file altered that is `known`: the seal is of what was written to it.
    MachineError where one of the others holds the bytes that are to stay unsaid.
    """
    if set(streams) != set(STREAMS):
        raise EvidenceError("evidence.chain", f"heads of {sorted(streams)}, not of {sorted(STREAMS)}", file=SEAL)
    entries = _entries(paths)
    if SEAL in entries:
        raise EvidenceError("evidence.seal", "the attempt is sealed already", file=SEAL)
    for problem in _strangers(entries, is_sealed=True):
        raise EvidenceError(problem.code, problem.detail, file=problem.file)
    if gone := [name for name in known if name not in entries]:
        raise EvidenceError("evidence.missing-file", "absent", file=gone[0])
    draft = Seal(
        attempt_id=attempt_id,
        sealed_at_ms=clock.wall_ms(),
        files={name: known.get(name) or measure(paths.folder / name, unsaid=unsaid) for name in SEALED},
        streams={name: streams[name] for name in STREAMS},
        sha256="",
    )
    return stamp(draft)


def affix(paths: AttemptPaths, sealed: Seal, *, is_durable: bool) -> None:
    """Put the seal in its place, which completes the attempt.

    Where this does not make it durable, the caller has synced all that the seal names, and syncs the seal afterwards.
    """
    if is_durable:
        for name in SEALED:
            sync_file(paths.folder / name)
        # First the names of the files, then the seal: a seal on disk must mean that the rest is there too.
        sync_folder(paths.folder)
    write_artifact(paths.seal, sealed, redactor=None, is_durable=is_durable)
    if is_durable:
        sync_folder(paths.folder.parent)


def seal_process(paths: RuntimePaths, record: ProcessRecord, *, redactor: Redactor, is_durable: bool = True) -> None:
    """The last file of a runtime process, which makes its frames complete. They are durable by now."""
    # The digest is of what is written, so it comes after redaction, and nothing may change after it.
    write_artifact(paths.record, stamp(redactor.value(record)), redactor=None, is_durable=is_durable)


def stamp(draft: Stamped) -> Stamped:
    """The same with its own digest in it."""
    return msgspec.structs.replace(draft, sha256=_own_digest(draft))


def read_seal(path: Path) -> Seal:
    """A seal that agrees with itself to the byte, or an EvidenceError: `evidence.partial` where there is none."""
    found = read_stamped(path, Seal)
    if set(found.files) != set(SEALED) or set(found.streams) != set(STREAMS):
        raise EvidenceError("evidence.seal", "names other files than an attempt has", file=path.name)
    return found


def read_stamped(path: Path, type_: type[Stamped]) -> Stamped:
    """A record that agrees with its own digest to the byte, or an EvidenceError."""
    try:
        data = read_bytes(path)
        found = msgspec.json.decode(data, type=type_)
        # The digest is of the value; comparing the spelling too finds a changed space or a doubled key.
        is_whole = found.sha256 == _own_digest(found) and data == render_artifact(found)
    except EvidenceError as error:
        if error.code == "evidence.missing-file":
            raise EvidenceError("evidence.partial", "no seal", file=path.name) from error
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError("evidence.seal", str(error), file=path.name) from error
    if not is_whole:
        raise EvidenceError("evidence.seal", "not as it was written", file=path.name)
    return found


def check_seal(paths: AttemptPaths) -> tuple[Problem, ...]:
    """Everything about the folder that is not as it was sealed. Empty means whole."""
    try:
        entries = _entries(paths)
    except EvidenceError as error:
        return (Problem.of(error),)
    problems = list(_strangers(entries, is_sealed=SEAL in entries))
    found = None
    if entries.get(SEAL, True):
        try:
            found = read_seal(paths.seal)
        except EvidenceError as error:
            problems.append(Problem.of(error))
    for name in SEALED:
        # Without a seal the attempt was cut off, and a file that was never written is no surprise.
        if name not in entries and SEAL in entries:
            problems.append(Problem(code="evidence.missing-file", file=name, detail="absent"))
        if found is not None and entries.get(name):
            problems.extend(_differences(paths.folder / name, sealed=found.files[name]))
    return tuple(problems)


def _differences(path: Path, *, sealed: SealedFile) -> Iterator[Problem]:
    try:
        now = measure(path)
    except EvidenceError as error:
        yield Problem.of(error)
        return
    if now != sealed:
        detail = "altered" if now.bytes == sealed.bytes else f"{now.bytes} bytes, but {sealed.bytes} were sealed"
        yield Problem(code="evidence.digest", file=path.name, detail=detail)


def _entries(paths: AttemptPaths) -> dict[str, bool]:
    """What the folder holds: each name, and whether it is a regular file."""
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


def _strangers(entries: Mapping[str, bool], *, is_sealed: bool) -> Iterator[Problem]:
    known = {SEAL, *SEALED}
    if not is_sealed:
        known |= {beside(Path(name)).name for name in known}  # writes that were cut off
    if SEAL in entries:
        known.add(SEAL_SIGNATURE)
    for name, is_file in sorted(entries.items()):
        if not is_file:
            yield Problem(code="evidence.containment", file=name, detail="not a regular file")
        elif name not in known:
            yield Problem(code="evidence.extra-file", file=name, detail="not a file of an attempt")


def measure(path: Path, *, unsaid: bytes = b"") -> SealedFile:
    """A file of any size as a seal names it, or an EvidenceError; MachineError where it holds what must be unsaid."""
    fd = open_descriptor(path)
    sha256, size_bytes, before = hashlib.sha256(), 0, b""
    try:
        # Not hashlib.file_digest(), nor a buffered file: both take longer to set up than a small file to be read.
        while chunk := os.read(fd, _CHUNK_BYTES):
            sha256.update(chunk)
            size_bytes += len(chunk)
            _refuse(unsaid, before + chunk, file=str(path))
            before = chunk[1 - len(unsaid) :] if unsaid else b""
    except OSError as error:
        raise unreadable(error, path=path) from error
    finally:
        os.close(fd)
    return SealedFile(sha256=sha256.hexdigest(), bytes=size_bytes)


def measure_bytes(data: bytes, *, file: str, unsaid: bytes = b"") -> SealedFile:
    """The same of what was just written to it."""
    _refuse(unsaid, data, file=file)
    return SealedFile(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


def _refuse(unsaid: bytes, data: bytes, *, file: str) -> None:
    if unsaid and unsaid in data:
        raise MachineError("run.redaction", "the planted canary was written as it is", file=file)


def _own_digest(record: Seal | ProcessRecord) -> str:
    value = msgspec.to_builtins(record)
    del value["sha256"]
    return canonical.digest(value).removeprefix("sha256:")
