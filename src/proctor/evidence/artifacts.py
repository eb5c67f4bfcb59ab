"""The JSON files of an attempt, each a struct with a schema version."""

from typing import Any, Literal

import msgspec

from proctor.errors import Bucket
from proctor.event.metrics import Metrics
from proctor.event.outcome import Outcome
from proctor.fact import Fact
from proctor.ids import (
    AttemptId,
    CampaignId,
    CellId,
    Digest,
    FlowId,
    MissionId,
    ProcessId,
    RunId,
    StrategyId,
    ThreadId,
)
from proctor.plan.model import Limits, Plan
from proctor.spec.expect import ExpectSpec
from proctor.spec.model import Approvals, Isolation, Sandbox
from proctor.spec.running import ToolsSpec


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of an artifact."""


class Artifact(Part, frozen=True, kw_only=True):
    """Root of all artifacts. Of another version than ours it does not read."""

    schema_version: Literal[1] = 1


class PlanFile(Artifact, frozen=True, kw_only=True):
    """plan.json. `snapshot` holds the digest of every file of spec.snapshot, as it was written there."""

    plan: Plan
    snapshot: dict[str, Digest]


class AttemptRecord(Artifact, frozen=True, kw_only=True):
    """attempt.json: who, what, which plan, which workspace. Written before the agent is asked anything.

    `plan_file_digest` is of plan.json's bytes, so that the attempt's seal vouches for the campaign's plan and spec too.
    """

    attempt_id: AttemptId
    cell: CellId
    n: int
    campaign_id: CampaignId
    run_id: RunId
    mission_id: MissionId
    flow_id: FlowId
    repeat: int
    strategy: StrategyId
    plan_digest: Digest
    plan_file_digest: Digest | None = None  # a conversation has no such file
    cell_digest: Digest
    prompt_digest: Digest
    workspace_digest: Digest
    required_probes: tuple[Digest, ...]
    expect: ExpectSpec | None = None  # what its mission states
    isolation: Isolation
    sandbox: Sandbox
    approvals: Approvals
    limits: Limits
    tools: ToolsSpec = ToolsSpec()
    secret_names: tuple[str, ...]
    created_at_ms: int


class RunnerRef(Artifact, frozen=True, kw_only=True):
    """runner.ref.json: which program answered, and what is known of it on whose word."""

    attempt_id: AttemptId
    strategy: StrategyId
    transport: str
    process_id: ProcessId | None
    session_id: str | None
    thread_id: ThreadId | None
    is_fresh_session: bool
    facts: dict[str, Fact]


class Feedback(Artifact, frozen=True, kw_only=True):
    """feedback.json: what the agent itself claims, at which frame. None is no claim.

    `result` is what it handed in beside its answer, whatever that is.
    """

    attempt_id: AttemptId
    claimed: bool | None
    answer: str | None
    frame: int | None
    problem: str | None
    result: Any = None


class Expectation(Part, frozen=True, kw_only=True):
    """Whether the spec's expectation came true. None where it has none."""

    met: bool | None
    misses: tuple[str, ...]


class AttemptReport(Artifact, frozen=True, kw_only=True):
    """attempt.report.json: how it ended, what was claimed, what was verified, what it cost.

    Where a code ended it, `bucket` says whose matter that is and `todo` what to do. `policy_violations` are the tool
    calls that the flow's `tools` did not allow. What an older Proctor did not look at is None.
    """

    attempt_id: AttemptId
    outcome: Outcome
    code: str | None
    detail: str | None
    bucket: Bucket | None = None
    retryable: bool | None = None
    todo: str | None = None
    claimed: bool | None
    verified: bool | None
    reasons: tuple[str, ...]
    expectation: Expectation
    metrics: Metrics
    retry_after_ms: int | None = None  # where it was told when to come back: from its end on
    workspace_digest_after: Digest | None
    has_changed_files: bool | None = None
    policy_violations: tuple[str, ...] | None = None
    duration_ms: int


class SealedFile(Part, frozen=True, kw_only=True):
    sha256: str
    bytes: int


class StreamHead(Part, frozen=True, kw_only=True):
    """Where a chain ended: its number of rows, and the link of its last line."""

    rows: int
    head: str


class ProcessRecord(Artifact, frozen=True, kw_only=True):
    """process.json: one runtime process, and how many lines it said, counted apart from any recording.

    Written when the process has ended; `sha256` is of the rest, spelled canonically.
    """

    process_id: ProcessId
    strategy: StrategyId
    frames_in: int
    rows: dict[str, int]
    facts: dict[str, Fact]
    stream: StreamHead
    sha256: str


class Seal(Artifact, frozen=True, kw_only=True):
    """seal.json: what every other file was when the attempt ended. `sha256` is of the rest, spelled canonically."""

    attempt_id: AttemptId
    sealed_at_ms: int
    statement: Literal["integrity only: shows damage, not forgery"] = "integrity only: shows damage, not forgery"
    files: dict[str, SealedFile]
    streams: dict[str, StreamHead]
    sha256: str
