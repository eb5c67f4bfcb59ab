"""Writes the last files of an attempt, and builds its seal. The agent is not involved any more."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor import decoding
from proctor.attempt.derive import DerivedResult
from proctor.attempt.expectation import decision_of, expectation_of
from proctor.attempt.model import AttemptRequest, Lease
from proctor.attempt.policy import violations
from proctor.attempt.workspace_layout import WorkspaceLayout
from proctor.errors import EvidenceError, advice
from proctor.event.trace import ToolCall
from proctor.evidence import layout, tripwire
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal, SealedFile, StreamHead
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.digests import measure_bytes
from proctor.evidence.redact import Redactor
from proctor.evidence.seal import build_seal
from proctor.evidence.summary import AttemptSummary, summarize
from proctor.ids import ProcessId, ThreadId, session_id_of
from proctor.probe.failure import failure_of
from proctor.probe.model import ProbeRow
from proctor.workspace.diff import diff
from proctor.workspace.snapshot import Snapshot


@dataclass(slots=True, kw_only=True)
class SessionRecord:
    """What the supervisor knows about the session."""

    prompt: str = ""
    lease: Lease | None = None
    process: ProcessId | None = None
    thread: ThreadId | None = None
    is_fresh: bool = True
    """Whether the session is neither resumed nor forked."""
    is_open: bool = False
    """Whether the session was opened."""
    written: dict[str, bytes] = field(default_factory=dict)
    """Bytes of the files that were written before the agent started, by name."""


def finalize(
    request: AttemptRequest,
    derived: DerivedResult,
    conversation: SessionRecord,
    *,
    base: Snapshot,
    now: Snapshot,
    workspace: WorkspaceLayout,
    redactor: Redactor,
    duration_ms: int,
    streams: Mapping[str, StreamHead],
    files: Mapping[str, SealedFile],
    changes: bytes | None = None,
) -> tuple[AttemptSummary, Seal]:
    """Write the remaining files, and return the summary and the seal, which is not written yet.

    `streams` and `files` describe the streams, and the files that probes kept, as they were written. `changes` is the
    content of workspace.diff if it was taken earlier. Raises EvidenceError if a file was changed or cannot be read,
    MachineError if the disk refuses.
    """
    claim, ending = derived.claim, derived.ending
    ref = _runner_ref(request, derived, conversation)
    feedback = Feedback(
        attempt_id=request.attempt_id,
        claimed=claim.claimed,
        answer=claim.answer,
        frame=claim.frame,
        problem=claim.problem,
        result=claim.result,
    )
    if changes is None:
        changes = diff(workspace.base_root, workspace.root, base=base, now=now)
    paths = request.paths
    written = {
        layout.RUNNER_REF: layout.write_artifact(paths.runner_ref, ref, redactor=redactor, is_durable=False),
        layout.FEEDBACK: layout.write_artifact(paths.feedback, feedback, redactor=redactor, is_durable=False),
        layout.WORKSPACE_DIFF: layout.write_text_artifact(
            paths.workspace_diff, changes.decode("utf-8", "surrogateescape"), redactor=redactor, is_durable=False
        ),
    }
    # As it is on disk: redacted, like everything that it is compared with.
    record = decoding.decode(conversation.written[layout.ATTEMPT], AttemptRecord)
    with AttemptFiles(paths) as files_now:
        probes = tuple(files_now.rows(layout.PROBES, ProbeRow))
        decision = decision_of(record, probes, workspace_digest=now.digest)
        expectation = expectation_of(record, files_now, derived, decision)
        policy_violations = violations(
            request.flow.tools,
            files_now.rows(layout.TOOL_CALLS, ToolCall),
            are_seen=derived.metrics.tool_calls is not None,
        )
    report = AttemptReport(
        attempt_id=request.attempt_id,
        outcome=ending.outcome,
        code=ending.code,
        detail=ending.detail,
        **advice(ending.code, has_begun=derived.metrics.turns > 0),
        claimed=claim.claimed,
        verified=decision.verified.as_bool,
        judged=decision.judged,
        reasons=decision.reasons,
        reason_codes=decision.reason_codes,
        criteria=decision.criteria,
        expectation=expectation,
        metrics=derived.metrics,
        retry_after_ms=ending.retry_after_ms,
        workspace_digest_after=now.digest,
        has_changed_files=now.digest != base.digest,
        policy_violations=policy_violations,
        duration_ms=duration_ms,
        failure=failure_of(
            probes,
            written[layout.WORKSPACE_DIFF].decode("utf-8", "replace"),
            workspace_digest=now.digest,
            verified=decision.verified.as_bool,
            is_met=expectation.met,
        ),
    )
    written[layout.REPORT] = layout.write_artifact(paths.report, report, redactor=redactor, is_durable=False)
    forbidden = tripwire.forbidden_bytes(tripwire.find_tripwire(request.secrets))
    known = {name: measure_bytes(data, file=name, forbidden=forbidden) for name, data in written.items()}
    sealed = build_seal(
        paths,
        attempt_id=request.attempt_id,
        clock=request.clock,
        streams=streams,
        forbidden=forbidden,
        known={**known, **files},
    )
    for name, data in conversation.written.items():
        # An agent that may write anywhere could have changed files that were written before it started.
        if sealed.files[name].sha256 != hashlib.sha256(data).hexdigest():
            raise EvidenceError("evidence.digest", "changed before it was sealed", file=name)
    return summarize(record, decoding.decode(written[layout.REPORT], AttemptReport)), sealed


def _runner_ref(request: AttemptRequest, derived: DerivedResult, conversation: SessionRecord) -> RunnerRef:
    facts = derived.facts
    return RunnerRef(
        attempt_id=request.attempt_id,
        runtime_id=request.runtime.id,
        # A runtime may have several transports; the fact names the one that was used.
        transport=facts["transport"].value if "transport" in facts else request.runtime.transports[0],
        process_id=conversation.process,
        session_id=session_id_of(request.attempt_id, conversation.thread),
        thread_id=conversation.thread,
        is_fresh_session=conversation.is_fresh,
        facts=facts,
    )
