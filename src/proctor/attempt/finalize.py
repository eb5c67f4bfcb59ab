"""The last files of an attempt, all but its seal. Nothing here asks the agent anything."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor.attempt.derive import Derived
from proctor.attempt.expectation import expectation_of
from proctor.attempt.model import AttemptAsk, Lease
from proctor.attempt.policy import violations
from proctor.errors import EvidenceError, advice
from proctor.event.trace import ToolCall
from proctor.evidence import canary, layout
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal, SealedFile, StreamHead
from proctor.evidence.reader import read_rows
from proctor.evidence.redact import Redactor
from proctor.evidence.seal import draw_up, measure_bytes
from proctor.ids import ProcessId, ThreadId
from proctor.probe.gate import decide
from proctor.probe.model import ProbeRow, require
from proctor.workspace.diff import diff
from proctor.workspace.snapshot import Snapshot


@dataclass(slots=True, kw_only=True)
class Conversation:
    """What the supervisor learned of the session on the way."""

    prompt: str = ""
    lease: Lease | None = None
    process: ProcessId | None = None
    session_id: str | None = None
    thread: ThreadId | None = None
    is_fresh: bool = True
    is_open: bool = False
    probes: list[ProbeRow] = field(default_factory=list)
    written: dict[str, bytes] = field(default_factory=dict)


def finalize(
    ask: AttemptAsk,
    derived: Derived,
    conversation: Conversation,
    *,
    base: Snapshot,
    now: Snapshot,
    workspace: Path,
    redactor: Redactor,
    duration_ms: int,
    streams: Mapping[str, StreamHead],
    files: Mapping[str, SealedFile],
    changes: bytes | None = None,
) -> tuple[AttemptReport, Seal]:
    """Write what is left of the layout, all but the seal, which is drawn up. `streams` and `files` are of the streams.

    `changes` are what workspace.diff will say, where that was worked out before something else was let near it.
    """
    claim, ending = derived.claim, derived.ending
    ref = _runner_ref(ask, derived, conversation)
    feedback = Feedback(
        attempt_id=ask.attempt_id,
        claimed=claim.claimed,
        answer=claim.answer,
        frame=claim.frame,
        problem=claim.problem,
        result=claim.result,
    )
    if changes is None:
        changes = diff(ask.workspace_source, workspace, base=base, now=now)
    paths = ask.paths
    written = {
        layout.RUNNER_REF: layout.write_artifact(paths.runner_ref, ref, redactor=redactor, is_durable=False),
        layout.FEEDBACK: layout.write_artifact(paths.feedback, feedback, redactor=redactor, is_durable=False),
        layout.WORKSPACE_DIFF: layout.write_text_artifact(
            paths.workspace_diff, changes.decode("utf-8", "surrogateescape"), redactor=redactor, is_durable=False
        ),
    }
    decision = decide(
        require(ask.mission.probes), conversation.probes, workspace_digest=now.digest, base_digest=base.digest
    )
    report = AttemptReport(
        attempt_id=ask.attempt_id,
        outcome=ending.outcome,
        code=ending.code,
        detail=ending.detail,
        **advice(ending.code),
        claimed=claim.claimed,
        verified=decision.verified.as_bool,
        reasons=decision.reasons,
        # As it stands on record: redacted, like everything that it is compared with.
        expectation=expectation_of(
            msgspec.json.decode(conversation.written[layout.ATTEMPT], type=AttemptRecord),
            paths,
            derived,
            verified=decision.verified,
        ),
        metrics=derived.metrics,
        retry_after_ms=ending.retry_after_ms,
        workspace_digest_after=now.digest,
        has_changed_files=now.digest != base.digest,
        policy_violations=violations(ask.flow.tools, _calls(ask)),
        duration_ms=duration_ms,
    )
    written[layout.REPORT] = layout.write_artifact(paths.report, report, redactor=redactor, is_durable=False)
    unsaid = canary.unsaid(canary.among(ask.secrets))
    known = {name: measure_bytes(data, file=name, unsaid=unsaid) for name, data in written.items()}
    sealed = draw_up(
        paths, attempt_id=ask.attempt_id, clock=ask.clock, streams=streams, unsaid=unsaid, known={**known, **files}
    )
    for name, data in conversation.written.items():
        # An agent that may write anywhere could have changed what was written before it began.
        if sealed.files[name].sha256 != hashlib.sha256(data).hexdigest():
            raise EvidenceError("evidence.digest", "changed before it was sealed", file=name)
    return report, sealed


def _calls(ask: AttemptAsk) -> Iterator[ToolCall]:
    """As they were recorded; read only where there is a policy to hold them against."""
    return iter(read_rows(ask.paths.tool_calls, ToolCall))


def _runner_ref(ask: AttemptAsk, derived: Derived, conversation: Conversation) -> RunnerRef:
    facts = derived.facts
    return RunnerRef(
        attempt_id=ask.attempt_id,
        strategy=ask.runtime.id,
        # A runtime may have more than one, and the process knows which it was.
        transport=facts["transport"].value if "transport" in facts else ask.runtime.transports[0],
        process_id=conversation.process,
        session_id=conversation.session_id,
        thread_id=conversation.thread,
        is_fresh_session=conversation.is_fresh,
        facts=facts,
    )
