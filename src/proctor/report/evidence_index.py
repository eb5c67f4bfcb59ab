"""The attempt folders and the files of campaigns that one command reads, each of them once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proctor.errors import EvidenceError, advice
from proctor.evidence.artifacts import AttemptRecord, AttemptReport
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import Finding, read_bytes
from proctor.evidence.summary import AttemptSummary, summarize
from proctor.ids import AttemptId, Digest, RunId
from proctor.report.row import AttemptRow, Evidence

if TYPE_CHECKING:
    from proctor.evidence.validate import Validation

Check = Callable[[AttemptFiles], tuple[Evidence, tuple[Finding, ...]]]
"""Examines an attempt's evidence. Never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReading:
    """What the folder of an attempt says."""

    row: AttemptRow
    """The attempt as its own files describe it."""
    plan_digests: tuple[Digest, Digest | None] | None
    """Digest of the plan and of plan.json in attempt.json; None if that cannot be read."""
    created_at_ms: int | None
    """When attempt.json was written; None if that cannot be read."""
    evidence: Evidence
    """Result of the check; `unchecked` without one."""
    findings: tuple[Finding, ...]
    """What the check found."""

    @property
    def summary(self) -> AttemptSummary | None:
        """What the sealed files say; None if there is no seal or they cannot be read."""
        return self.row.summary

    @property
    def is_intact(self) -> bool:
        """Whether there is a seal, and every file is as it was sealed."""
        if self.row.state != "sealed":
            return False
        from proctor.evidence.seal import check_seal  # not needed to list attempts

        # Not by the findings of a check: a runtime that is not installed here is one, and says nothing about the seal.
        with AttemptFiles(paths_of(self.row)) as files:
            return not check_seal(files)


@dataclass(frozen=True, slots=True)
class EvidenceIndex:
    """Reads evidence for one command and remembers what it says."""

    check: Check | None = None
    """Examines each folder that is read; None to read only what a listing needs."""
    is_strict: bool = False
    """Whether a ledger that disagrees with the folder makes the attempt's evidence invalid."""
    _readings: dict[str, FolderReading] = field(default_factory=dict)
    _files: dict[Path, bytes | EvidenceError] = field(default_factory=dict)

    def read(self, paths: AttemptPaths) -> FolderReading:
        """Read an attempt's folder, whatever it contains."""
        name = str(paths.folder)
        if (known := self._readings.get(name)) is None:
            with AttemptFiles(paths) as files:
                evidence, findings = ("unchecked", ()) if self.check is None else self.check(files)
                known = self._readings[name] = _read_folder(files, evidence, findings)
        return known

    def read_file(self, path: Path) -> bytes:
        """Read a file of a campaign. Raises the same EvidenceError each time."""
        if (known := self._files.get(path)) is None:
            try:
                known = read_bytes(path)
            except EvidenceError as error:
                known = error
            self._files[path] = known
        if isinstance(known, EvidenceError):
            raise known
        return known

    def add(self, files: AttemptFiles, validation: "Validation") -> None:
        """Read a folder that is open and was validated already."""
        reading = _read_folder(files, validation.status.value, validation.findings)
        self._readings[str(files.paths.folder)] = reading


def _read_folder(files: AttemptFiles, evidence: Evidence, checked: tuple[Finding, ...]) -> FolderReading:
    findings: list[Finding] = []
    record, report = None, None
    try:
        record = files.record
    except EvidenceError as error:
        # A cut-off attempt may lack any file; a sealed one has them all.
        if files.is_sealed or error.code != "evidence.missing-file":
            findings.append(Finding.of(error))
    if files.is_sealed:
        try:
            report = files.report
        except EvidenceError as error:
            findings.append(Finding.of(error))
    folder = files.paths.folder
    row = AttemptRow(
        attempt_id=AttemptId(folder.name),
        run_id=RunId(folder.absolute().parent.parent.name),
        state="unreadable" if findings else "sealed" if files.is_sealed else "partial",
        dir=str(folder),
        findings=tuple(findings),
    )
    return FolderReading(
        row=row if record is None else _with_record(row, record, report),
        plan_digests=None if record is None else (record.plan_digest, record.plan_file_digest),
        created_at_ms=None if record is None else record.created_at_ms,
        evidence=evidence,
        findings=checked,
    )


def _with_record(row: AttemptRow, record: AttemptRecord, report: AttemptReport | None) -> AttemptRow:
    row = msgspec.structs.replace(
        row,
        campaign_id=record.campaign_id,
        trial=record.trial,
        mission_id=record.mission_id,
        flow_id=record.flow_id,
        repeat=record.repeat,
        n=record.n,
        runtime_id=record.runtime_id,
    )
    if report is None:
        return row
    summary = summarize(record, report)
    tokens = None if summary.tokens is None else summary.tokens.total
    return with_code(msgspec.structs.replace(row, summary=summary, tokens=tokens), summary.code)


def with_code(row: AttemptRow, code: str | None) -> AttemptRow:
    """Return the row with an error code, what it means, and the detail of the row's summary."""
    summary = row.summary
    known = advice(code) if summary is None else advice(code, has_begun=summary.has_begun)
    return msgspec.structs.replace(row, code=code, **known, detail=None if summary is None else summary.detail)


def paths_of(row: AttemptRow) -> AttemptPaths:
    """Return the folder of an attempt."""
    return AttemptPaths(Path(row.dir))
