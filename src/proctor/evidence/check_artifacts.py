"""Checks of an attempt's single files: each fits its schema, and all belong to the same attempt."""

from collections.abc import Iterator
from typing import Any

from proctor import canonical
from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import ATTEMPT, FEEDBACK, PROMPT, REPORT, RUNNER_REF, SEAL, WORKSPACE_DIFF
from proctor.evidence.reader import Finding

_TYPES: dict[str, Any] = {ATTEMPT: AttemptRecord, RUNNER_REF: RunnerRef, FEEDBACK: Feedback, REPORT: AttemptReport}


def check_artifacts(files: AttemptFiles, *, seal: Seal | None) -> Iterator[Finding]:
    """Check the JSON files, the prompt and the diff. Absent files are not reported: that depends on the seal."""
    artifacts: dict[str, Any] = {} if seal is None else {SEAL: seal}
    for name, type_ in _TYPES.items():
        try:
            artifacts[name] = files.artifact(name, type_)
        except EvidenceError as error:
            yield from _unless_absent(error)
    record: AttemptRecord | None = artifacts.get(ATTEMPT)
    yield from _check_ids(files.paths.folder.name, record, artifacts)
    for name in (PROMPT, WORKSPACE_DIFF):
        try:
            data = files.read_bytes(name)
            data.decode()
        except EvidenceError as error:
            yield from _unless_absent(error)
        except UnicodeDecodeError as error:
            yield Finding(code="evidence.syntax", file=name, detail=str(error))
        else:
            if name == PROMPT and record is not None and canonical.digest_bytes(data) != record.prompt_digest:
                yield Finding(
                    code="evidence.digest", file=name, detail=f"its digest is not the promptDigest of {ATTEMPT}"
                )


def _check_ids(folder: str, record: AttemptRecord | None, artifacts: dict[str, Any]) -> Iterator[Finding]:
    attempt_id = folder if record is None else record.attempt_id
    if attempt_id != folder:
        yield _id_mismatch(ATTEMPT, "attempt", attempt_id, "the folder", folder)
    if record is not None and attempt_id != f"{record.trial}.{record.n}":
        yield _id_mismatch(ATTEMPT, "attempt", attempt_id, "the trial", f"{record.trial}.{record.n}")
    for name, artifact in artifacts.items():
        if artifact.attempt_id != attempt_id:
            yield _id_mismatch(name, "attempt", artifact.attempt_id, ATTEMPT, attempt_id)
    ref: RunnerRef | None = artifacts.get(RUNNER_REF)
    if ref is not None and record is not None and ref.runtime_id != record.runtime_id:
        yield _id_mismatch(RUNNER_REF, "runtimeId", ref.runtime_id, ATTEMPT, record.runtime_id)


def _id_mismatch(file: str, what: str, here: str, other: str, there: str) -> Finding:
    return Finding(code="evidence.ids", file=file, detail=f"{what} {here!r}, but {other} says {there!r}")


def _unless_absent(error: EvidenceError) -> Iterator[Finding]:
    if error.code != "evidence.missing-file":
        yield Finding.of(error)
