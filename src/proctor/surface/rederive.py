"""Derive the derived files of an attempt again: compare those that exist, and restore those that are missing."""

import hashlib

import msgspec

from proctor.attempt.recheck import FileStatus, agrees, derive_again, restore
from proctor.errors import EvidenceError, Exit
from proctor.evidence.artifacts import SealedFile
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import Finding


class Rederivation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of `proctor attempt rederive`."""

    attempt_id: str
    """Id of the attempt."""
    dir: str
    """Path of the attempt's folder."""
    is_dry: bool
    """Whether it was a dry run, which restores nothing."""
    exit: int
    """Exit code of the command: 0 if every file agrees, 4 if the attempt is partial, 5 if any file differs."""
    files: dict[str, FileStatus]
    """Status of every derived file, by its name."""
    findings: tuple[Finding, ...]
    """Differences, missing files, and what is wrong with the frames."""


def rederive_files(paths: AttemptPaths, *, is_dry: bool) -> Rederivation:
    """Compare the derived files of an attempt with its frames, and restore missing ones unless `is_dry`.

    Raises EvidenceError if the frames cannot be read.
    """
    if is_dry:
        with AttemptFiles(paths) as files:
            statuses, stream_findings = _compare(files)
    else:
        restored = restore(paths)
        statuses, stream_findings = restored.files, restored.findings
    findings = (
        *stream_findings,
        *(
            Finding(code="evidence.derived", file=name, detail="differs from what the frames give")
            for name, status in statuses.items()
            if status is FileStatus.DIFFERS
        ),
        *(
            Finding(code="evidence.missing-file", file=name, detail="absent")
            for name, status in statuses.items()
            if status is FileStatus.ABSENT
        ),
    )
    is_partial = any(finding.code == "evidence.partial" for finding in findings)
    excused = {"evidence.partial", "evidence.torn", "evidence.missing-file"} if is_partial else set()
    is_invalid = any(finding.code not in excused for finding in findings)
    return Rederivation(
        attempt_id=paths.folder.name,
        dir=str(paths.folder),
        is_dry=is_dry,
        exit=Exit.EVIDENCE if is_invalid else Exit.UNVERIFIED if is_partial else Exit.OK,
        files=statuses,
        findings=findings,
    )


def _compare(files: AttemptFiles) -> tuple[dict[str, FileStatus], tuple[Finding, ...]]:
    again = derive_again(files)
    findings = again.findings
    sealed: dict[str, SealedFile] = {}
    try:
        sealed = files.seal.files
    except EvidenceError as error:
        findings = (*findings, Finding.of(error))
    statuses = {}
    for name, data in again.files.items():
        if files.exists(name):
            is_same = agrees(files, name, again, is_sealed=bool(sealed))
            statuses[name] = FileStatus.SAME if is_same else FileStatus.DIFFERS
        else:
            derived = SealedFile(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
            statuses[name] = FileStatus.ABSENT if sealed.get(name, derived) == derived else FileStatus.DIFFERS
    return statuses, findings
