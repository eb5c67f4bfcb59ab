"""Checks that an attempt's files agree with its frames and probes, and restores derived files from the frames."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import TypeVar

import msgspec

from proctor import canonical, decoding
from proctor.attempt.continued_attempts import check_continuation
from proctor.attempt.expectation import decision_of, expectation_of
from proctor.attempt.policy import violations
from proctor.attempt.rederive import RederiveResult, rederive
from proctor.errors import EvidenceError, ProctorError
from proctor.event.row import CommitStatus
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal, SealedFile
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.check_run import Seen, validate_run
from proctor.evidence.disk import replace_file
from proctor.evidence.layout import (
    ATTEMPT,
    FEEDBACK,
    FRAMES,
    PROBES,
    REPORT,
    RUNNER_REF,
    SEAL,
    TOOL_CALLS,
    WORKSPACE_DIFF,
    AttemptPaths,
    RunPaths,
    is_probe_file,
)
from proctor.evidence.reader import Finding
from proctor.evidence.validate import Validation, conclude, validate_attempt
from proctor.fact import Fact
from proctor.ids import Digest, session_id_of
from proctor.probe.failure import failure_of
from proctor.probe.model import ProbeRow
from proctor.workspace.changed import has_edits

T = TypeVar("T")

_SHOWN_CHARS = 120


def examine(files: AttemptFiles, *, is_strict: bool) -> Validation:
    """Run every check on an attempt's evidence. Never raises."""
    validation = validate_attempt(files, is_strict=is_strict)
    if not is_strict or not _can_derive(files, validation):
        return validation
    return conclude("attempt", files.paths.folder.name, (*validation.findings, *recheck(files)))


def examine_run(run: RunPaths, *, is_strict: bool, seen: Seen | None = None) -> tuple[Validation, ...]:
    """Examine the run's own folder, then its attempts, then its runtime processes. Raises only what `seen` raises.

    `seen` is called with each attempt's files, while they are open, and its validation.
    """
    return validate_run(run, is_strict=is_strict, check=partial(examine, is_strict=is_strict), seen=seen)


def _can_derive(files: AttemptFiles, validation: Validation) -> bool:
    """Whether there are intact frames to derive from. Findings derived from damaged frames would say nothing new."""
    is_sound = all(
        finding.file not in (ATTEMPT, FRAMES) or finding.code == "evidence.torn" for finding in validation.findings
    )
    return is_sound and files.exists(ATTEMPT)


def recheck(files: AttemptFiles) -> tuple[Finding, ...]:
    """Derive again from the frames, decide again from the probes, and report where the files differ."""
    try:
        again = derive_again(files)
        record = files.record
    except ProctorError as error:
        return (Finding(code=error.code, file=error.file or ATTEMPT, line=error.line, detail=error.what),)
    findings = [*again.findings, *_check_files(files, again)]
    feedback = _read(files, FEEDBACK, Feedback, findings)
    if feedback is not None:
        findings += _differences(FEEDBACK, feedback, again.derived.claim)
    ref = _read(files, RUNNER_REF, RunnerRef, findings)
    if ref is not None and ref.thread_id not in (None, again.thread):
        detail = f"thread {ref.thread_id!r}, but the frames say {again.thread!r}"
        findings.append(Finding(code="evidence.ids", file=RUNNER_REF, detail=detail))
    if ref is not None and ref.session_id not in (None, session_id_of(record.attempt_id, again.thread)):
        detail = f"session {ref.session_id!r}, but the frames say thread {again.thread!r}"
        findings.append(Finding(code="evidence.ids", file=RUNNER_REF, detail=detail))
    if ref is not None:
        findings += _check_facts(ref.facts, again.derived.facts)
        if record.sitting is None and again.is_resumed not in (None, not ref.is_fresh_session):
            detail = f"isFreshSession is {ref.is_fresh_session}, but the frames say otherwise"
            findings.append(Finding(code="evidence.derived", file=RUNNER_REF, detail=detail))
    findings += _check_commit(files, again.derived.commit)
    findings += check_continuation(files, record, ref)
    probes = files.rows(PROBES, ProbeRow)
    rows = list(probes)
    findings += probes.findings
    findings += _check_kept_files(files, rows)
    report = _read(files, REPORT, AttemptReport, findings)
    if report is not None:
        findings += _check_report(report, again, record, rows, files)
    return tuple(dict.fromkeys(findings))


def _check_kept_files(files: AttemptFiles, rows: list[ProbeRow]) -> Iterator[Finding]:
    """Check that the files which probes kept are those that their rows name, with the content they had."""
    named = {each.file: each for row in rows for each in row.artifacts}
    try:
        there = {name for name in files.entries() if is_probe_file(name)}
        for name in sorted(named.keys() | there):
            if name not in named:
                yield Finding(code="evidence.extra-file", file=name, detail="no probe row names it")
            elif name not in there:
                yield Finding(code="evidence.missing-file", file=name, detail="absent, but a probe row names it")
            elif f"sha256:{files.measure(name).sha256}" != named[name].sha256:
                yield Finding(code="evidence.digest", file=name, detail="not the file that its probe row names")
    except EvidenceError as error:
        yield Finding.of(error)


def derive_again(files: AttemptFiles) -> RederiveResult:
    """Derive the files again. Raises ProctorError, also for an error in the runtime's normalizer."""
    try:
        return rederive(files)
    except ProctorError:
        raise
    except Exception as error:
        # The normalizer may come from a plugin, and the rows are not trusted.
        what = f"the runtime's normalizer failed: {type(error).__name__}: {error}"
        raise EvidenceError("evidence.derived", what, file=FRAMES) from error


def agrees(files: AttemptFiles, name: str, again: RederiveResult, *, is_sealed: bool) -> bool:
    """Whether a derived file has the content that the frames give. Raises EvidenceError if it cannot be read.

    Without a seal, only the common prefix is compared, and not what is written when the record ends: frames may be
    missing at the end.
    """
    data = again.files[name]
    content = files.read_start(name, size_bytes=len(data) + 1)
    if is_sealed:
        return content == data
    size = min(len(content), again.streamed_bytes[name])
    return content[:size] == data[:size]


def _check_files(files: AttemptFiles, again: RederiveResult) -> Iterator[Finding]:
    for name in again.files:
        try:
            if not agrees(files, name, again, is_sealed=files.is_sealed):
                yield Finding(code="evidence.derived", file=name, detail="differs from what the frames give")
        except EvidenceError as error:
            yield Finding.of(error)


def _check_facts(recorded: Mapping[str, Fact], derived: Mapping[str, Fact]) -> Iterator[Finding]:
    """Check that each fact of runner.ref.json, with its authority and conflicts, is the one that the frames give."""
    for name in sorted({*recorded, *derived}):
        here, there = recorded.get(name), derived.get(name)
        try:
            if canonical.encode(here) == canonical.encode(there):
                continue
            detail = f"fact {name} is {_describe(here)}, but the frames give {_describe(there)}"
        except RecursionError:  # a value may be readable but nested too deeply to compare
            detail = f"fact {name} is nested too deeply"
        yield Finding(code="evidence.derived", file=RUNNER_REF, detail=detail)


def _describe(fact: Fact | None) -> str:
    return "absent" if fact is None else f"{_shown(fact.value)} ({fact.authority})"


def _check_report(
    report: AttemptReport, again: RederiveResult, record: AttemptRecord, rows: list[ProbeRow], files: AttemptFiles
) -> Iterator[Finding]:
    derived = again.derived
    yield from _differences(REPORT, report.metrics, derived.metrics)
    yield from _differences(REPORT, report, derived.ending)
    yield from _differences(REPORT, report, derived.claim)
    now = report.workspace_digest_after or Digest("")
    decision = decision_of(record, rows, workspace_digest=now)
    if report.has_changed_files is not (now != record.workspace_digest):
        detail = f"has_changed_files is {report.has_changed_files}, but the digests say otherwise"
        yield Finding(code="evidence.derived", file=REPORT, detail=detail)
    yield from _check_diff(report, record, files)
    broken = violations(record.tools, _calls(again), are_seen=derived.metrics.tool_calls is not None)
    if report.policy_violations != broken:
        detail = f"policy_violations are {_shown(report.policy_violations)}, but the tool calls give {_shown(broken)}"
        yield Finding(code="evidence.derived", file=REPORT, detail=detail)
    if report.degraded != derived.degraded:
        detail = f"degraded is {_shown(report.degraded)}, but the frames give {_shown(derived.degraded)}"
        yield Finding(code="evidence.derived", file=REPORT, detail=detail)
    verified = decision.verified.as_bool
    if report.verified is not verified:
        detail = f"verified is {report.verified}, but the probes give {verified}"
        yield Finding(code="evidence.gate", file=REPORT, detail=detail)
    if report.judged is not decision.judged:
        detail = f"judged is {report.judged}, but the probes give {decision.judged}"
        yield Finding(code="evidence.gate", file=REPORT, detail=detail)
    if report.reason_codes != decision.reason_codes:
        here, there = (", ".join(codes) or "none" for codes in (report.reason_codes, decision.reason_codes))
        yield Finding(code="evidence.gate", file=REPORT, detail=f"reason codes are {here}, but the probes give {there}")
    if report.criteria != decision.criteria:
        yield Finding(code="evidence.gate", file=REPORT, detail="the criteria are not decided as the probes give")
    try:
        expectation = expectation_of(record, files, derived, decision)
    except EvidenceError as error:
        yield Finding.of(error)
        return
    diff = _read_diff(files)
    if diff is not None and report.workspace_digest_after is not None:
        failure = failure_of(rows, diff, workspace_digest=now, verified=verified, is_met=expectation.met)
        if (report.reasons, report.failure) != (decision.reasons, failure):
            detail = "why it failed is not what the probes and the workspace give"
            yield Finding(code="evidence.derived", file=REPORT, detail=detail)
    if report.expectation != expectation:
        detail = f"expectation is {_shown(report.expectation)}, but the evidence gives {_shown(expectation)}"
        yield Finding(code="evidence.derived", file=REPORT, detail=detail)


def _check_diff(report: AttemptReport, record: AttemptRecord, files: AttemptFiles) -> Iterator[Finding]:
    """Check that workspace.diff has edits only if the workspace digests differ. Its content cannot be checked."""
    text = _read_diff(files)
    if report.workspace_digest_after is None or text is None:
        return
    is_same = report.workspace_digest_after == record.workspace_digest
    if (is_same and has_edits(text)) or not (is_same or text):
        detail = f"it has {'edits' if text else 'no edits'}, but the digests of the workspace say otherwise"
        yield Finding(code="evidence.derived", file=WORKSPACE_DIFF, detail=detail)


def _check_commit(files: AttemptFiles, derived: CommitStatus | None) -> Iterator[Finding]:
    """Compare what the seal says of commits. A seal that cannot be read is reported by the validation of the files."""
    with suppress(EvidenceError):
        if files.is_sealed and files.seal.commit != derived:
            detail = f"commit {files.seal.commit!r}, but the frames say {derived!r}"
            yield Finding(code="evidence.ids", file=SEAL, detail=detail)


def _read_diff(files: AttemptFiles) -> str | None:
    """Return workspace.diff; None if it cannot be read, which the validation of the files reports."""
    try:
        return files.read_bytes(WORKSPACE_DIFF).decode("utf-8", "replace")
    except EvidenceError:
        return None


def _calls(again: RederiveResult) -> Iterator[ToolCall]:
    return (decoding.decode(line, ToolCall) for line in again.files[TOOL_CALLS].splitlines())


def _differences(file: str, recorded: msgspec.Struct, derived: msgspec.Struct) -> Iterator[Finding]:
    """Yield a finding for each field that both structs have and that differs."""
    for field in derived.__struct_fields__:
        if field not in recorded.__struct_fields__:
            continue
        if (here := getattr(recorded, field)) != (there := getattr(derived, field)):
            detail = f"{field} is {_shown(here)}, but the frames give {_shown(there)}"
            yield Finding(code="evidence.derived", file=file, detail=detail)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _read(files: AttemptFiles, name: str, type_: type[T], findings: list[Finding]) -> T | None:
    try:
        return files.artifact(name, type_)
    except EvidenceError as error:
        # Without a seal the attempt was cut off, so an absent file is not a finding.
        if files.is_sealed or error.code != "evidence.missing-file":
            findings.append(Finding.of(error))
        return None


# ── restoring ──


class FileStatus(StrEnum):
    """Result of restoring one derived file."""

    SAME = "same"
    """The file exists and has the content that the frames give."""
    RESTORED = "restored"
    """The file was absent. The frames gave the sealed content, and it was written."""
    DIFFERS = "differs"
    """The file, or the sealed digest of an absent file, does not match what the frames give."""
    ABSENT = "absent"
    """The file is absent, and there is no valid seal to restore it by."""


class RestoreResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Result of restoring the derived files of an attempt."""

    files: dict[str, FileStatus]
    """Result for each derived file, by name."""
    findings: tuple[Finding, ...]
    """What is wrong with the frames or the seal."""


def restore(paths: AttemptPaths) -> RestoreResult:
    """Write absent derived files again. An existing file is never changed.

    Raises EvidenceError if the attempt cannot be derived again, and MachineError if the folder cannot be written.
    """
    with AttemptFiles(paths) as files:
        again = derive_again(files)
        try:
            seal = files.seal
        except EvidenceError as error:
            seal, findings = None, (*again.findings, Finding.of(error))
        else:
            findings = again.findings
        statuses = {name: _restore(files, name, again, seal) for name in again.files}
    return RestoreResult(files=statuses, findings=findings)


def _restore(files: AttemptFiles, name: str, again: RederiveResult, seal: Seal | None) -> FileStatus:
    data = again.files[name]
    if files.exists(name):
        return FileStatus.SAME if agrees(files, name, again, is_sealed=seal is not None) else FileStatus.DIFFERS
    if seal is None:
        return FileStatus.ABSENT
    if seal.files[name] != SealedFile(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data)):
        return FileStatus.DIFFERS
    replace_file(files.paths.folder / name, data)
    return FileStatus.RESTORED
