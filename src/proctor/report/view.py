"""Everything one attempt left, read whatever state it is in."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from proctor.errors import EvidenceError
from proctor.event.trace import ToolCall
from proctor.event.transcript import Line
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import Finding, read_artifact, read_bytes, read_rows
from proctor.evidence.seal import check_seal, read_seal
from proctor.probe.model import ProbeRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """None or nothing where a file is absent or damaged; `findings` says which and why."""

    paths: AttemptPaths
    record: AttemptRecord | None
    prompt: str | None
    tool_calls: tuple[ToolCall, ...]
    transcript: tuple[Line, ...]
    runner: RunnerRef | None
    feedback: Feedback | None
    probes: tuple[ProbeRow, ...]
    diff: str | None
    report: AttemptReport | None
    seal: Seal | None
    findings: tuple[Finding, ...]

    @property
    def is_sealed(self) -> bool:
        return os.path.lexists(self.paths.seal)

    @property
    def is_whole(self) -> bool:
        return self.is_sealed and not self.findings


def view_attempt(paths: AttemptPaths) -> AttemptView:
    """Never raises for what the folder holds. The frames themselves are not read."""
    reader = _Reader(is_sealed=os.path.lexists(paths.seal))
    found = AttemptView(
        paths=paths,
        record=reader.artifact(paths.attempt, AttemptRecord),
        prompt=reader.text(paths.prompt),
        tool_calls=reader.rows(paths.tool_calls, ToolCall),
        transcript=reader.rows(paths.transcript, Line),
        runner=reader.artifact(paths.runner_ref, RunnerRef),
        feedback=reader.artifact(paths.feedback, Feedback),
        probes=reader.rows(paths.probes, ProbeRow),
        diff=reader.text(paths.workspace_diff),
        report=reader.artifact(paths.report, AttemptReport),
        seal=reader.seal(paths.seal),
        findings=(),
    )
    return replace(found, findings=tuple(dict.fromkeys((*check_seal(paths), *reader.findings))))


class _Reader:
    """Reads what can be read and keeps what was wrong."""

    def __init__(self, *, is_sealed: bool) -> None:
        self.findings: list[Finding] = []
        self._is_sealed = is_sealed

    def artifact(self, path: Path, type_: type[T]) -> T | None:
        try:
            return read_artifact(path, type_)
        except EvidenceError as error:
            self._note(error)
            return None

    def text(self, path: Path) -> str | None:
        try:
            return read_bytes(path).decode(errors="replace")
        except EvidenceError as error:
            self._note(error)
            return None

    def rows(self, path: Path, type_: type[T]) -> tuple[T, ...]:
        reading = read_rows(path, type_)
        rows = tuple(reading)
        self.findings += [finding for finding in reading.findings if not self._is_expected(finding.code)]
        return rows

    def seal(self, path: Path) -> Seal | None:
        try:
            return read_seal(path)
        except EvidenceError:
            return None  # check_seal tells why

    def _note(self, error: EvidenceError) -> None:
        if not self._is_expected(error.code):
            self.findings.append(Finding.of(error))

    def _is_expected(self, code: str) -> bool:
        """An attempt that was cut off may lack any file, which `evidence.partial` says already."""
        return code == "evidence.missing-file" and not self._is_sealed
