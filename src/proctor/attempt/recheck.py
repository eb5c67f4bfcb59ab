"""What only the whole flow can check: that an attempt's files say what its frames and its probes give."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from proctor import canonical
from proctor.attempt.expectation import expectation_of
from proctor.attempt.policy import violations
from proctor.attempt.rederive import Rederived, rederive
from proctor.errors import EvidenceError, ProctorError
from proctor.event.metrics import Metrics
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal, SealedFile
from proctor.evidence.check_run import validate_run
from proctor.evidence.disk import open_regular, replace_file, unreadable
from proctor.evidence.layout import (
    ATTEMPT,
    FEEDBACK,
    FRAMES,
    REPORT,
    RUNNER_REF,
    TOOL_CALLS,
    WORKSPACE_DIFF,
    AttemptPaths,
    RunPaths,
)
from proctor.evidence.reader import Problem, read_artifact, read_bytes, read_rows
from proctor.evidence.seal import read_seal
from proctor.evidence.validate import Validation, conclude, validate_attempt
from proctor.fact import Fact
from proctor.ids import Digest
from proctor.probe.gate import decide
from proctor.probe.model import ProbeRow, RequiredProbe
from proctor.workspace.changed import has_edits

T = TypeVar("T")

_SHOWN_CHARS = 120

# Of metrics: a Proctor that sealed before there were these left them out.
_NOT_ALWAYS_MEASURED = {each.name for each in msgspec.structs.fields(Metrics) if not each.required}


def examine(paths: AttemptPaths, *, is_strict: bool) -> Validation:
    """Everything that can be said of an attempt's evidence. Whatever lies there, this gives codes and never raises."""
    found = validate_attempt(paths, is_strict=is_strict)
    if not is_strict or not _has_ground(paths, found):
        return found
    return conclude("attempt", paths.folder.name, (*found.problems, *recheck(paths)))


def examine_run(run: RunPaths, *, is_strict: bool) -> tuple[Validation, ...]:
    """The run's own folder, then each of its attempts, then each of its runtime processes. Never raises."""
    return validate_run(run, is_strict=is_strict, check=partial(examine, is_strict=is_strict))


def _has_ground(paths: AttemptPaths, found: Validation) -> bool:
    """Whether there are frames to derive from; of damaged ones nothing that follows would be news."""
    is_sound = all(
        problem.file not in (ATTEMPT, FRAMES) or problem.code == "evidence.torn" for problem in found.problems
    )
    return is_sound and os.path.lexists(paths.attempt)


def recheck(paths: AttemptPaths) -> tuple[Problem, ...]:
    """Derive again from the frames, decide again from the probes, and compare with what the files say."""
    try:
        again = derive_again(paths)
        record = read_artifact(paths.attempt, AttemptRecord)
    except ProctorError as error:
        return (Problem(code=error.code, file=error.file or ATTEMPT, line=error.line, detail=error.what),)
    is_sealed = os.path.lexists(paths.seal)
    problems = [*again.problems, *_check_files(paths, again, is_sealed=is_sealed)]
    feedback = _read(paths.feedback, Feedback, problems, is_sealed=is_sealed)
    if feedback is not None:
        problems += _differences(FEEDBACK, feedback, again.derived.claim)
    ref = _read(paths.runner_ref, RunnerRef, problems, is_sealed=is_sealed)
    if ref is not None and ref.thread_id not in (None, again.thread):
        detail = f"thread {ref.thread_id!r}, but the frames say {again.thread!r}"
        problems.append(Problem(code="evidence.ids", file=RUNNER_REF, detail=detail))
    if ref is not None:
        problems += _check_facts(ref.facts, again.derived.facts)
    probes = read_rows(paths.probes, ProbeRow)
    rows = list(probes)
    problems += probes.problems
    report = _read(paths.report, AttemptReport, problems, is_sealed=is_sealed)
    if report is not None:
        problems += _check_report(report, again, record, rows, paths)
    return tuple(dict.fromkeys(problems))


def derive_again(paths: AttemptPaths) -> Rederived:
    """The derivation, or a ProctorError."""
    try:
        return rederive(paths)
    except ProctorError:
        raise
    except Exception as error:
        # A normalizer may come from a plugin, and these rows from anybody.
        what = f"the normalizer fails on it: {type(error).__name__}: {error}"
        raise EvidenceError("evidence.derived", what, file=FRAMES) from error


def agrees(path: Path, again: Rederived, *, is_sealed: bool) -> bool:
    """Whether a derived file is what the frames give; of a cut-off attempt, as far as both go. May raise EvidenceError.

    What was to follow the last row that is left cannot be known, so an end that was put to the file is not compared.
    """
    data = again.files[path.name]
    try:
        with open_regular(path) as file:
            there = file.read(len(data) + 1)
    except OSError as error:
        raise unreadable(error, path=path) from error
    if is_sealed:
        return there == data
    both = min(len(there), again.streamed_bytes[path.name])
    return there[:both] == data[:both]


def _check_files(paths: AttemptPaths, again: Rederived, *, is_sealed: bool) -> Iterator[Problem]:
    for name in again.files:
        try:
            if not agrees(paths.folder / name, again, is_sealed=is_sealed):
                yield Problem(code="evidence.derived", file=name, detail="not what the frames give")
        except EvidenceError as error:
            yield Problem.of(error)


def _check_facts(told: Mapping[str, Fact], derived: Mapping[str, Fact]) -> Iterator[Problem]:
    """Every fact of runner.ref.json is the fold of what was recorded: on the same word, with the same conflicts."""
    for name in sorted({*told, *derived}):
        here, there = told.get(name), derived.get(name)
        try:
            if canonical.encode(here) == canonical.encode(there):
                continue
            detail = f"fact {name} is {_stated(here)}, but the frames give {_stated(there)}"
        except RecursionError:  # nested as deep as can be read is deeper than can be compared
            detail = f"fact {name} is nested too deeply"
        yield Problem(code="evidence.derived", file=RUNNER_REF, detail=detail)


def _stated(fact: Fact | None) -> str:
    return "absent" if fact is None else f"{_shown(fact.value)} ({fact.authority})"


def _check_report(
    report: AttemptReport, again: Rederived, record: AttemptRecord, rows: list[ProbeRow], paths: AttemptPaths
) -> Iterator[Problem]:
    derived = again.derived
    yield from _differences(REPORT, report.metrics, derived.metrics)
    yield from _differences(REPORT, report, derived.ending)
    yield from _differences(REPORT, report, derived.claim)
    required = [RequiredProbe(digest=each, kind="", index=at) for at, each in enumerate(record.required_probes)]
    now = report.workspace_digest_after or Digest("")
    decision = decide(required, rows, workspace_digest=now, base_digest=record.workspace_digest)
    if report.has_changed_files not in (None, now != record.workspace_digest):
        detail = f"has_changed_files is {report.has_changed_files}, but the digests say otherwise"
        yield Problem(code="evidence.derived", file=REPORT, detail=detail)
    yield from _check_diff(report, record, paths)
    broken = violations(record.tools, _calls(again))
    if report.policy_violations not in (None, broken):
        detail = f"policy_violations are {_shown(report.policy_violations)}, but the tool calls give {_shown(broken)}"
        yield Problem(code="evidence.derived", file=REPORT, detail=detail)
    verified = decision.verified.as_bool
    if report.verified is not verified:
        detail = f"verified is {report.verified}, but the probes give {verified}"
        yield Problem(code="evidence.gate", file=REPORT, detail=detail)
    if record.expect is None:
        return  # written by a Proctor that did not keep it
    try:
        expectation = expectation_of(record, paths, derived, verified=decision.verified)
    except EvidenceError as error:
        yield Problem.of(error)
        return
    if report.expectation != expectation:
        detail = f"expectation is {_shown(report.expectation)}, but the evidence gives {_shown(expectation)}"
        yield Problem(code="evidence.derived", file=REPORT, detail=detail)


def _check_diff(report: AttemptReport, record: AttemptRecord, paths: AttemptPaths) -> Iterator[Problem]:
    """Trees that differ have a diff, and equal ones have no edits. What the edits are, no digest can say."""
    if report.workspace_digest_after is None:
        return
    try:
        text = read_bytes(paths.workspace_diff).decode("utf-8", "replace")
    except EvidenceError:  # whoever reads the files themselves tells
        return
    is_same = report.workspace_digest_after == record.workspace_digest
    if (is_same and has_edits(text)) or not (is_same or text):
        detail = f"it shows {'edits' if text else 'nothing'}, but the digests of the workspace say otherwise"
        yield Problem(code="evidence.derived", file=WORKSPACE_DIFF, detail=detail)


def _calls(again: Rederived) -> Iterator[ToolCall]:
    return (msgspec.json.decode(line, type=ToolCall) for line in again.files[TOOL_CALLS].splitlines())


def _differences(file: str, told: msgspec.Struct, derived: msgspec.Struct) -> Iterator[Problem]:
    """Fields of the same name that differ."""
    for field in derived.__struct_fields__:
        if field in _NOT_ALWAYS_MEASURED and getattr(told, field) is None:
            continue
        if field in told.__struct_fields__ and (here := getattr(told, field)) != (there := getattr(derived, field)):
            detail = f"{field} is {_shown(here)}, but the frames give {_shown(there)}"
            yield Problem(code="evidence.derived", file=file, detail=detail)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _read(path: Path, type_: type[T], problems: list[Problem], *, is_sealed: bool) -> T | None:
    try:
        return read_artifact(path, type_)
    except EvidenceError as error:
        # Without a seal the attempt was cut off, and a late file is no surprise.
        if is_sealed or error.code != "evidence.missing-file":
            problems.append(Problem.of(error))
        return None


# ── putting back ──


class Fate(StrEnum):
    """What became of a derived file."""

    SAME = "same"  # it is there, and is what the frames give
    RESTORED = "restored"  # it was gone; the frames gave the sealed bytes, and they are back
    DIFFERS = "differs"  # it is not what the frames give, or the frames do not give what was sealed
    ABSENT = "absent"  # it is gone, and no seal says what it was


class Restored(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    files: dict[str, Fate]
    problems: tuple[Problem, ...]


def restore(paths: AttemptPaths) -> Restored:
    """Put back derived files that are gone. One that is there is never written to, whatever it holds.

    EvidenceError where the attempt cannot be derived again at all; MachineError where the folder cannot be written.
    """
    again = derive_again(paths)
    try:
        seal = read_seal(paths.seal)
    except EvidenceError as error:
        seal, problems = None, (*again.problems, Problem.of(error))
    else:
        problems = again.problems
    fates = {name: _restore(paths.folder / name, again, seal) for name in again.files}
    return Restored(files=fates, problems=problems)


def _restore(path: Path, again: Rederived, seal: Seal | None) -> Fate:
    data = again.files[path.name]
    if os.path.lexists(path):
        return Fate.SAME if agrees(path, again, is_sealed=seal is not None) else Fate.DIFFERS
    if seal is None:
        return Fate.ABSENT
    if seal.files[path.name] != SealedFile(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data)):
        return Fate.DIFFERS
    replace_file(path, data)
    return Fate.RESTORED
