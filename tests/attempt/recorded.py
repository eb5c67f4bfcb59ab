"""The attempts of the recorded run, and how they are examined."""

from proctor.attempt.recheck import examine, recheck
from proctor.errors import CODES
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import Finding
from proctor.evidence.validate import Validation
from proctor.ids import AttemptId

FIX = AttemptId("fix.codex.r1.1")
CLAIM = AttemptId("claim.codex.r1.1")
NAP = AttemptId("nap.codex.r1.1")


def examined(paths: AttemptPaths, *, is_strict: bool) -> Validation:
    with AttemptFiles(paths) as files:
        return examine(files, is_strict=is_strict)


def rechecked(paths: AttemptPaths) -> tuple[Finding, ...]:
    with AttemptFiles(paths) as files:
        return recheck(files)


def strictly(paths: AttemptPaths) -> Validation:
    found = examined(paths, is_strict=True)
    assert {finding.code for finding in found.findings} <= set(CODES)
    return found


def codes(found: Validation) -> set[tuple[str, str]]:
    return {(finding.code, finding.file) for finding in found.findings}
