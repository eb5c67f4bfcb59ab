"""The last files of an attempt, then its seal. Nothing here asks the agent anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proctor.attempt.derive import Derived
from proctor.attempt.judge import judge
from proctor.attempt.model import AttemptAsk
from proctor.errors import EvidenceError
from proctor.evidence import canary, layout
from proctor.evidence.artifacts import AttemptReport, Feedback, RunnerRef, StreamHead
from proctor.evidence.reader import read_bytes
from proctor.evidence.redact import Redactor
from proctor.evidence.seal import seal
from proctor.fact import Authority, Fact
from proctor.ids import ProcessId, ThreadId
from proctor.probe.gate import decide
from proctor.probe.model import ProbeRow, require
from proctor.workspace.diff import diff
from proctor.workspace.snapshot import Snapshot


@dataclass(slots=True, kw_only=True)
class Conversation:
    """What the supervisor learned of the session on the way."""

    prompt: str = ""
    process: ProcessId | None = None
    session_id: str | None = None
    thread: ThreadId | None = None
    facts: dict[str, Fact] = field(default_factory=dict)
    probes: list[ProbeRow] = field(default_factory=list)
    process_rows_from: int | None = None
    process_rows_to: int | None = None
    written: dict[Path, bytes] = field(default_factory=dict)


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
) -> AttemptReport:
    """Write what is left of the layout and seal it."""
    for path, data in conversation.written.items():
        # An agent that may write anywhere could have changed what was written before it began.
        if read_bytes(path) != data:
            raise EvidenceError("evidence.digest", "changed before it was sealed", file=path.name)
    claim, ending = derived.claim, derived.ending
    layout.write_artifact(ask.paths.runner_ref, _runner_ref(ask, conversation), redactor=redactor, is_durable=False)
    feedback = Feedback(
        attempt_id=ask.attempt_id,
        claimed=claim.claimed,
        answer=claim.answer,
        frame=claim.frame,
        problem=claim.problem,
    )
    layout.write_artifact(ask.paths.feedback, feedback, redactor=redactor, is_durable=False)
    changes = diff(ask.workspace_source, workspace, base=base, now=now).decode("utf-8", "surrogateescape")
    layout.write_text_artifact(ask.paths.workspace_diff, changes, redactor=redactor, is_durable=False)
    decision = decide(
        require(ask.mission.probes), conversation.probes, workspace_digest=now.digest, base_digest=base.digest
    )
    report = AttemptReport(
        attempt_id=ask.attempt_id,
        outcome=ending.outcome,
        code=ending.code,
        detail=ending.detail,
        claimed=claim.claimed,
        verified=decision.verified.as_bool,
        reasons=decision.reasons,
        expectation=judge(ask.mission.expect, outcome=ending.outcome, verified=decision.verified, claim=claim),
        metrics=derived.metrics,
        workspace_digest_after=now.digest,
        duration_ms=duration_ms,
    )
    layout.write_artifact(ask.paths.report, report, redactor=redactor, is_durable=False)
    canary.refuse_leaks(canary.among(ask.secrets), (ask.paths.folder / name for name in layout.SEALED))
    seal(ask.paths, attempt_id=ask.attempt_id, clock=ask.clock, streams=streams)
    return report


def _runner_ref(ask: AttemptAsk, conversation: Conversation) -> RunnerRef:
    model, variable = ask.model, ask.model.key_variable
    facts = {
        **ask.facts,
        **conversation.facts,
        "model": Fact(
            value={"provider": model.provider, "requested": model.name}, authority=Authority.DECLARED, source="flow"
        ),
        "credential": Fact(
            value={"input": variable, "state": "not-needed" if variable is None else "unverified"},
            authority=Authority.OBSERVED,
            source="environment",
        ),
        "processFrames": Fact(
            value={"from": conversation.process_rows_from, "to": conversation.process_rows_to},
            authority=Authority.OBSERVED,
            source="rows of the runtime process while this attempt had its lease",
        ),
    }
    facts.setdefault("containment", ask.containment.fact())
    if (planted := canary.among(ask.secrets)) is not None:
        facts["redaction"] = canary.fact(planted)
    return RunnerRef(
        attempt_id=ask.attempt_id,
        strategy=ask.runtime.id,
        transport=ask.runtime.transport,
        process_id=conversation.process,
        session_id=conversation.session_id,
        thread_id=conversation.thread,
        is_fresh_session=True,
        facts=facts,
    )
