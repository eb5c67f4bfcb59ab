"""Validation of an attempt's evidence: findings with codes, and a status."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Literal

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.check_artifacts import check_artifacts
from proctor.evidence.check_streams import check_streams
from proctor.evidence.layout import (
    ATTEMPT,
    FEEDBACK,
    FRAMES,
    PROBES,
    PROMPT,
    REPORT,
    RUNNER_REF,
    TOOL_CALLS,
    TRANSCRIPT,
    WORKSPACE_DIFF,
)
from proctor.evidence.reader import Finding
from proctor.evidence.seal import check_seal

# The order in which an attempt creates its files. An attempt that is cut off leaves a prefix of this list.
_CREATION_ORDER = (
    FRAMES,
    TOOL_CALLS,
    TRANSCRIPT,
    PROBES,
    PROMPT,
    ATTEMPT,
    RUNNER_REF,
    FEEDBACK,
    WORKSPACE_DIFF,
    REPORT,
)


class Status(StrEnum):
    """Result of a validation."""

    VALID = "valid"
    """Nothing that was checked is wrong."""
    PARTIAL = "partial"
    """Nothing is wrong, but the evidence was cut off, or a part of it cannot be checked on this machine."""
    INVALID = "invalid"
    """Something is wrong."""


Kind = Literal["attempt", "process", "run", "campaign"]


class Validation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of validating one attempt, one agent process, or the folder of a run or campaign."""

    kind: Kind
    """What was validated."""
    name: str
    """Name of its folder."""
    status: Status
    """The status that follows from the findings."""
    findings: tuple[Finding, ...]
    """Everything that is wrong, each once."""


def validate_attempt(files: AttemptFiles, *, is_strict: bool) -> Validation:
    """Validate the folder of an attempt. Never raises.

    `is_strict` reads everything that can be checked without knowing the runtime. Otherwise only the digests of the
    seal are compared.
    """
    findings = list(check_seal(files))
    name = files.paths.folder.name
    if is_strict and all(finding.file != name for finding in findings):
        try:
            seal = files.seal
        except EvidenceError:  # reported by check_seal
            seal = None
        findings += check_artifacts(files, seal=seal)
        findings += check_streams(files, seal=seal)
        findings += _find_gaps(files)
    return conclude("attempt", name, findings)


def conclude(kind: Kind, name: str, findings: Iterable[Finding]) -> Validation:
    """Return the validation with each finding once, made printable, and the status that follows from them."""
    printable = tuple(
        msgspec.structs.replace(finding, file=_printable(finding.file), detail=_printable(finding.detail))
        for finding in dict.fromkeys(findings)
    )
    return Validation(kind=kind, name=_printable(name), status=_status(printable), findings=printable)


def _status(findings: Iterable[Finding]) -> Status:
    codes = {finding.code for finding in findings}
    # A runtime that is not available here does not make its evidence invalid.
    harmless = {"spec.unknown-runtime", "runtime.not-allowed", "runtime.ambiguous", "runtime.broken"}
    if "evidence.partial" in codes:
        harmless |= {"evidence.partial", "evidence.torn"}
    if not codes:
        return Status.VALID
    return Status.PARTIAL if codes <= harmless else Status.INVALID


def _find_gaps(files: AttemptFiles) -> Iterator[Finding]:
    """Yield the files that are absent although a later one exists. With a seal, check_seal reports the same."""
    exists = [files.exists(name) for name in _CREATION_ORDER]
    for index, name in enumerate(_CREATION_ORDER):
        if not exists[index] and any(exists[index:]):
            yield Finding(code="evidence.missing-file", file=name, detail="absent")


def _printable(text: str) -> str:
    r"""Escape what cannot be printed: file names may contain anything, and a lone surrogate cannot be encoded.

    >>> _printable("café \udcff \x1b[2J")
    'café \\udcff \\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
