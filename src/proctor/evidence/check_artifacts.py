"""The single files of an attempt: each fits its schema, and all speak of the same attempt."""

from collections.abc import Iterator
from typing import Any

from proctor import canonical
from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal
from proctor.evidence.layout import (
    ATTEMPT,
    FEEDBACK,
    PROMPT,
    REPORT,
    RUNNER_REF,
    SEAL,
    WORKSPACE_DIFF,
    AttemptPaths,
)
from proctor.evidence.reader import Problem, read_artifact, read_bytes

_TYPES: dict[str, Any] = {ATTEMPT: AttemptRecord, RUNNER_REF: RunnerRef, FEEDBACK: Feedback, REPORT: AttemptReport}


def check_artifacts(paths: AttemptPaths, *, seal: Seal | None) -> Iterator[Problem]:
    """What is absent is not told here: whether it should be there depends on the seal."""
    found: dict[str, Any] = {} if seal is None else {SEAL: seal}
    for name, type_ in _TYPES.items():
        try:
            found[name] = read_artifact(paths.folder / name, type_)
        except EvidenceError as error:
            yield from _unless_absent(error)
    record: AttemptRecord | None = found.get(ATTEMPT)
    yield from _ids(paths, record, found)
    for name in (PROMPT, WORKSPACE_DIFF):
        try:
            data = read_bytes(paths.folder / name)
            data.decode()
        except EvidenceError as error:
            yield from _unless_absent(error)
        except UnicodeDecodeError as error:
            yield Problem(code="evidence.syntax", file=name, detail=str(error))
        else:
            if name == PROMPT and record is not None and canonical.digest_bytes(data) != record.prompt_digest:
                yield Problem(code="evidence.digest", file=name, detail=f"not the prompt that {ATTEMPT} names")


def _ids(paths: AttemptPaths, record: AttemptRecord | None, found: dict[str, Any]) -> Iterator[Problem]:
    folder = paths.folder.name
    attempt_id = folder if record is None else record.attempt_id
    if attempt_id != folder:
        yield _stranger(ATTEMPT, "attempt", attempt_id, "the folder", folder)
    if record is not None and attempt_id != f"{record.cell}.{record.n}":
        yield _stranger(ATTEMPT, "attempt", attempt_id, "the cell", f"{record.cell}.{record.n}")
    for name, artifact in found.items():
        if artifact.attempt_id != attempt_id:
            yield _stranger(name, "attempt", artifact.attempt_id, ATTEMPT, attempt_id)
    ref: RunnerRef | None = found.get(RUNNER_REF)
    if ref is not None and record is not None and ref.strategy != record.strategy:
        yield _stranger(RUNNER_REF, "strategy", ref.strategy, ATTEMPT, record.strategy)


def _stranger(file: str, what: str, here: str, other: str, there: str) -> Problem:
    return Problem(code="evidence.ids", file=file, detail=f"{what} {here!r}, but {other} says {there!r}")


def _unless_absent(error: EvidenceError) -> Iterator[Problem]:
    if error.code != "evidence.missing-file":
        yield Problem.of(error)
