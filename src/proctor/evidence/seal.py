"""Seals: digest and size of every file of an attempt. An attempt is complete when it has a seal."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.clock import Clock
from proctor.errors import EvidenceError
from proctor.event.row import CommitStatus
from proctor.evidence.artifacts import ProcessRecord, Seal, SealedFile, StreamHead
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.digests import measure, stamp
from proctor.evidence.disk import draft_path, sync_file, sync_folder
from proctor.evidence.layout import (
    SEAL,
    SEAL_SIGNATURE,
    SEALED,
    STREAMS,
    AttemptPaths,
    RuntimePaths,
    is_probe_file,
    write_artifact,
)
from proctor.evidence.reader import Finding
from proctor.ids import AttemptId

if TYPE_CHECKING:
    # Commands that only read import this module, and redaction takes long to import.
    from proctor.evidence.redact import Redactor

_NOTHING: Mapping[str, SealedFile] = {}


def build_seal(
    paths: AttemptPaths,
    *,
    attempt_id: AttemptId,
    clock: Clock,
    streams: Mapping[str, StreamHead],
    forbidden: bytes = b"",
    known: Mapping[str, SealedFile] = _NOTHING,
    commit: CommitStatus | None = None,
) -> Seal:
    """Build the seal of an attempt's folder as it is now. Its files need not be durable yet.

    `streams` are the ends of the streams as the recorder has them in memory, and `known` the digests of files as they
    were written. So a file that was altered on disk before the seal does not match it. The other files are read.
    `commit` is what is known of the commits to a context engine.
    Raises EvidenceError if the folder is already sealed or has absent, extra or irregular files.
    Raises MachineError if one of the others contains the `forbidden` bytes.
    """
    if set(streams) != set(STREAMS):
        raise EvidenceError(
            "evidence.chain", f"stream heads given for {sorted(streams)}, expected {sorted(STREAMS)}", file=SEAL
        )
    with AttemptFiles(paths) as files:
        entries = files.entries()
    if SEAL in entries:
        raise EvidenceError("evidence.seal", "the attempt is already sealed", file=SEAL)
    for finding in _unexpected_entries(entries, is_sealed=True):
        raise EvidenceError(finding.code, finding.detail, file=finding.file)
    if absent := [name for name in known if name not in entries]:
        raise EvidenceError("evidence.missing-file", "absent", file=absent[0])
    draft = Seal(
        attempt_id=attempt_id,
        sealed_at_ms=clock.wall_ms(),
        commit=commit,
        files={
            name: known.get(name) or measure(paths.folder / name, forbidden=forbidden)
            for name in (*SEALED, *sorted(filter(is_probe_file, entries)))
        },
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
        for name in sealed.files:
            sync_file(paths.folder / name)
        # The folder is synced before the seal is written: a seal on disk must mean that the other files are there.
        sync_folder(paths.folder)
    write_artifact(paths.seal, sealed, redactor=None, is_durable=is_durable)
    if is_durable:
        sync_folder(paths.folder.parent)


def seal_process(paths: RuntimePaths, record: ProcessRecord, *, redactor: "Redactor", is_durable: bool = True) -> None:
    """Write process.json, which completes the record of an agent process. Its frames must be durable already."""
    # The digest covers the redacted record, so it is added after redaction.
    write_artifact(paths.record, stamp(redactor.value(record)), redactor=None, is_durable=is_durable)


def check_seal(files: AttemptFiles) -> tuple[Finding, ...]:
    """Return everything in the folder that differs from the seal; nothing if it is intact."""
    try:
        entries = files.entries()
    except EvidenceError as error:
        return (Finding.of(error),)
    findings = list[Finding]()
    seal = None
    if entries.get(SEAL, True):
        try:
            seal = files.seal
        except EvidenceError as error:
            findings.append(Finding.of(error))
    sealed = None if seal is None else seal.files
    findings[:0] = _unexpected_entries(entries, is_sealed=SEAL in entries, sealed=sealed)
    for name in SEALED if seal is None else seal.files:
        # Without a seal the attempt was cut off, so an absent file is not a finding.
        if name not in entries and SEAL in entries:
            findings.append(Finding(code="evidence.missing-file", file=name, detail="absent"))
        if seal is not None and entries.get(name):
            findings.extend(_differences(files, name, sealed=seal.files[name]))
    return tuple(findings)


def _differences(files: AttemptFiles, name: str, *, sealed: SealedFile) -> Iterator[Finding]:
    try:
        now = files.measure(name)
    except EvidenceError as error:
        yield Finding.of(error)
        return
    if now != sealed:
        detail = (
            "altered since it was sealed"
            if now.bytes == sealed.bytes
            else f"{now.bytes} bytes, but {sealed.bytes} were sealed"
        )
        yield Finding(code="evidence.digest", file=name, detail=detail)


def _unexpected_entries(
    entries: Mapping[str, bool], *, is_sealed: bool, sealed: Mapping[str, SealedFile] | None = None
) -> Iterator[Finding]:
    """Yield what does not belong in the folder. Before there is a seal, `sealed` is None and probes may keep files."""
    known = {SEAL, *SEALED, *(filter(is_probe_file, entries) if sealed is None else sealed)}
    if not is_sealed:
        known |= {draft_path(Path(name)).name for name in known}  # left by writes that were cut off
    if SEAL in entries:
        known.add(SEAL_SIGNATURE)
    for name, is_file in sorted(entries.items()):
        if not is_file:
            yield Finding(code="evidence.containment", file=name, detail="not a regular file")
        elif name not in known:
            yield Finding(code="evidence.extra-file", file=name, detail="not a file of an attempt")
