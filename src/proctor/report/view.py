"""Read all files of one attempt, in whatever state they are."""

import os
from dataclasses import dataclass, replace
from typing import TypeVar

from proctor.errors import EvidenceError
from proctor.event.trace import ToolCall
from proctor.event.transcript import Line
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import (
    ATTEMPT,
    FEEDBACK,
    PROBES,
    PROMPT,
    REPORT,
    RUNNER_REF,
    TOOL_CALLS,
    TRANSCRIPT,
    WORKSPACE_DIFF,
    AttemptPaths,
)
from proctor.evidence.reader import Finding
from proctor.evidence.seal import check_seal
from proctor.probe.model import ProbeRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """The files of an attempt. A missing or damaged file is None or empty, and `findings` says why."""

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
        """Whether the attempt has a seal, valid or not."""
        return os.path.lexists(self.paths.seal)

    @property
    def is_whole(self) -> bool:
        """Whether the attempt is sealed and nothing is wrong with it."""
        return self.is_sealed and not self.findings


def view_attempt(files: AttemptFiles) -> AttemptView:
    """Read an attempt. Never raises because of a file's content. The frames are not decoded."""
    reader = _Reader(files)
    found = AttemptView(
        paths=files.paths,
        record=reader.artifact(ATTEMPT, AttemptRecord),
        prompt=reader.text(PROMPT),
        tool_calls=reader.rows(TOOL_CALLS, ToolCall),
        transcript=reader.rows(TRANSCRIPT, Line),
        runner=reader.artifact(RUNNER_REF, RunnerRef),
        feedback=reader.artifact(FEEDBACK, Feedback),
        probes=reader.rows(PROBES, ProbeRow),
        diff=reader.text(WORKSPACE_DIFF),
        report=reader.artifact(REPORT, AttemptReport),
        seal=reader.seal(),
        findings=(),
    )
    return replace(found, findings=tuple(dict.fromkeys((*check_seal(files), *reader.findings))))


class _Reader:
    """Read what can be read, and collect what is wrong."""

    def __init__(self, files: AttemptFiles) -> None:
        self.findings: list[Finding] = []
        self._files = files

    def artifact(self, name: str, type_: type[T]) -> T | None:
        try:
            return self._files.artifact(name, type_)
        except EvidenceError as error:
            self._note(error)
            return None

    def text(self, name: str) -> str | None:
        try:
            return self._files.read_bytes(name).decode(errors="replace")
        except EvidenceError as error:
            self._note(error)
            return None

    def rows(self, name: str, type_: type[T]) -> tuple[T, ...]:
        reading = self._files.rows(name, type_)
        rows = tuple(reading)
        self.findings += [finding for finding in reading.findings if not self._is_expected(finding.code)]
        return rows

    def seal(self) -> Seal | None:
        try:
            return self._files.seal
        except EvidenceError:
            return None  # check_seal reports why

    def _note(self, error: EvidenceError) -> None:
        if not self._is_expected(error.code):
            self.findings.append(Finding.of(error))

    def _is_expected(self, code: str) -> bool:
        """Return whether `evidence.partial` covers a finding: an attempt that was cut off may lack any file."""
        return code == "evidence.missing-file" and not self._files.is_sealed
