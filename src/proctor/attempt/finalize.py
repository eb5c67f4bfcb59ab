"""Writes the last files of an attempt, and builds its seal. The agent is not involved any more."""

import hashlib

from proctor import decoding
from proctor.attempt.derive import DerivedResult
from proctor.attempt.expectation import decision_of, expectation_of
from proctor.attempt.model import AttemptRequest
from proctor.attempt.policy import violations
from proctor.attempt.supervision import Supervision
from proctor.errors import EvidenceError, advice
from proctor.event.trace import ToolCall
from proctor.evidence import layout, tripwire
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.digests import measure_bytes
from proctor.evidence.seal import build_seal
from proctor.evidence.summary import AttemptSummary, summarize
from proctor.ids import session_id_of
from proctor.probe.failure import failure_of
from proctor.probe.model import ProbeRow
from proctor.workspace.snapshot import Snapshot


def finalize(supervision: Supervision, now: Snapshot, *, changes: bytes | None = None) -> tuple[AttemptSummary, Seal]:
    """Write the remaining files, and return the summary and the seal, which is not written yet.

    `now` is the workspace as the agent left it, and `changes` the content of workspace.diff if it was taken earlier.
    Raises EvidenceError if a file was changed or cannot be read, MachineError if the disk refuses.
    """
    request, redactor, first_files = supervision.request, supervision.redactor, supervision.first_files
    derived = supervision.recording.derivation.finish()
    claim, ending = derived.claim, derived.ending
    ref = _runner_ref(supervision, derived)
    feedback = Feedback(
        attempt_id=request.attempt_id,
        claimed=claim.claimed,
        answer=claim.answer,
        frame=claim.frame,
        problem=claim.problem,
        result=claim.result,
    )
    if changes is None:
        changes = supervision.diff(now)
    paths = request.paths
    written = {
        layout.RUNNER_REF: layout.write_artifact(paths.runner_ref, ref, redactor=redactor, is_durable=False),
        layout.FEEDBACK: layout.write_artifact(paths.feedback, feedback, redactor=redactor, is_durable=False),
        layout.WORKSPACE_DIFF: layout.write_text_artifact(
            paths.workspace_diff, changes.decode("utf-8", "surrogateescape"), redactor=redactor, is_durable=False
        ),
    }
    # As it is on disk: redacted, like everything that it is compared with.
    record = decoding.decode(first_files[layout.ATTEMPT], AttemptRecord)
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
        has_changed_files=now.digest != supervision.base.digest,
        policy_violations=policy_violations,
        degraded=derived.degraded,
        duration_ms=supervision.duration_ms,
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
        streams=supervision.recording.heads(),
        forbidden=forbidden,
        known={**known, **supervision.recording.files()},
        commit=derived.commit,
    )
    for name, data in first_files.items():
        # An agent that may write anywhere could have changed files that were written before it started.
        if sealed.files[name].sha256 != hashlib.sha256(data).hexdigest():
            raise EvidenceError("evidence.digest", "changed before it was sealed", file=name)
    return summarize(record, decoding.decode(written[layout.REPORT], AttemptReport)), sealed


def _runner_ref(supervision: Supervision, derived: DerivedResult) -> RunnerRef:
    request, thread, facts = supervision.request, supervision.thread, derived.facts
    return RunnerRef(
        attempt_id=request.attempt_id,
        runtime_id=request.runtime.id,
        # A runtime may have several transports; the fact names the one that was used.
        transport=facts["transport"].value if "transport" in facts else request.runtime.transports[0],
        process_id=None if supervision.lease is None else supervision.lease.process,
        session_id=session_id_of(request.attempt_id, thread),
        thread_id=thread,
        is_fresh_session=_is_fresh(request),
        facts=facts,
        sitting=request.sitting,
        last_turn=supervision.last_turn,
    )


def _is_fresh(request: AttemptRequest) -> bool:
    if request.sitting is not None:
        # With a context engine, each turn decides on its thread.
        return request.sitting.is_fresh
    return request.resume is None and request.fork is None
