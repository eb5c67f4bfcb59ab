"""A small attempt made by the recorder, without an agent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from proctor import canonical
from proctor.errors import advice
from proctor.event.bounds import PREVIEW_BYTES, TEXT_BYTES
from proctor.event.metrics import MetricsFold
from proctor.event.outcome import Outcome
from proctor.event.row import StepTaken
from proctor.event.trace import ToolCall
from proctor.event.transcript import Line
from proctor.evidence.artifacts import (
    AttemptRecord,
    AttemptReport,
    Expectation,
    Feedback,
    GateReason,
    RunnerRef,
)
from proctor.evidence.layout import (
    ATTEMPT,
    FEEDBACK,
    FRAMES,
    PROBES,
    REPORT,
    RUNNER_REF,
    TOOL_CALLS,
    TRANSCRIPT,
    AttemptPaths,
    write_artifact,
)
from proctor.evidence.recorder import ChainedLog, FrameLog
from proctor.evidence.redact import Redactor
from proctor.ids import (
    AttemptId,
    CallId,
    CampaignId,
    Digest,
    FlowId,
    MissionId,
    RunId,
    RuntimeId,
    TrialId,
    TurnId,
)
from proctor.plan.model import Limits
from proctor.spec.campaign_options import ToolsSpec
from proctor.spec.choices import Approvals, Isolation, Sandbox
from proctor.spec.expect import ExpectSpec
from tests.sealed import seal

A1 = AttemptId("fix.native.r1.1")
PROMPTED = b"Fix it.\n"
NOTHING = Digest("sha256:0")

ATTEMPT_RECORD = AttemptRecord(
    is_scripted=True,
    attempt_id=A1,
    trial=TrialId("fix.native.r1"),
    n=1,
    campaign_id=CampaignId("c"),
    run_id=RunId("r"),
    mission_id=MissionId("fix"),
    flow_id=FlowId("native"),
    repeat=1,
    runtime_id=RuntimeId("some_agent"),
    plan_digest=NOTHING,
    plan_file_digest=None,
    trial_digest=NOTHING,
    prompt_digest=canonical.digest_bytes(PROMPTED),
    required_probes=(),
    expect=ExpectSpec(),
    workspace_digest=NOTHING,
    isolation=Isolation.SHARED,
    sandbox=Sandbox.WORKSPACE_WRITE,
    approvals=Approvals.DENY,
    limits=Limits(attempt_ms=3, turn_ms=2, stall_ms=1),
    tools=ToolsSpec(),
    secret_names=(),
    created_at_ms=0,
)
RUNNER = RunnerRef(
    attempt_id=A1,
    runtime_id=RuntimeId("some_agent"),
    transport="stdio",
    process_id=None,
    session_id=None,
    thread_id=None,
    is_fresh_session=True,
    facts={},
)
CLAIMED = Feedback(attempt_id=A1, claimed=None, answer=None, frame=None, problem=None, result=None)
REPORTED = AttemptReport(
    attempt_id=A1,
    outcome=Outcome.UNKNOWN,
    code=None,
    detail=None,
    **advice(None),
    claimed=None,
    verified=None,
    reasons=("the mission has no probe",),
    reason_codes=(GateReason.NO_PROBE,),
    expectation=Expectation(met=None, keys={}, unmet=()),
    metrics=MetricsFold().finish(),
    retry_after_ms=None,
    workspace_digest_after=None,
    has_changed_files=False,
    policy_violations=(),
    duration_ms=0,
)
CALL = ToolCall(
    attempt=A1,
    session=None,
    call=CallId("c1"),
    turn=TurnId("t1"),
    kind="command",
    name="shell",
    input={"command": "ls"},
    ok=True,
    status="completed",
    began_at_ms=0,
    output="é" * (PREVIEW_BYTES // 2),
    output_bytes=PREVIEW_BYTES + 7,
    cut_output_bytes=7,
)
LINE = Line(kind="message", at_ms=0, frame=1, text="x" * TEXT_BYTES)


class At:
    """A clock that stands still."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def steady_s(self) -> float:
        return 0.0


def make(
    folder: Path,
    *,
    artifacts: Mapping[str, msgspec.Struct] | None = None,
    prompt: bytes = PROMPTED,
    changes: bytes = b"",
    rows: Mapping[str, list[Any]] | None = None,
) -> AttemptPaths:
    """A sealed attempt, with these things of it other than they should be."""
    paths = AttemptPaths(folder)
    paths.create()
    whole = {ATTEMPT: ATTEMPT_RECORD, RUNNER_REF: RUNNER, FEEDBACK: CLAIMED, REPORT: REPORTED, **(artifacts or {})}
    for name, artifact in whole.items():
        write_artifact(folder / name, artifact, redactor=None)
    paths.prompt.write_bytes(prompt)
    paths.workspace_diff.write_bytes(changes)
    told: dict[str, list[Any]] = {TOOL_CALLS: [CALL], TRANSCRIPT: [LINE], PROBES: [{"any": "thing"}], **(rows or {})}
    heads = {}
    if FRAMES not in told:
        with FrameLog(paths.frames, redactor=Redactor([]), clock=At()) as log:
            log.say(StepTaken(step="began"))
            heads[FRAMES] = log.head
    for name, each in told.items():
        with ChainedLog(folder / name) as chained:
            chained.append(each)
            heads[name] = chained.head
    seal(paths, attempt_id=A1, clock=At(), streams=heads)
    return paths
