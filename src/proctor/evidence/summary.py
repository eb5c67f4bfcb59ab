"""The summary of a sealed attempt: one struct for the ledger, lists, reports, progress rows and statements."""

from typing import Annotated, Final, Literal, cast

import msgspec

from proctor.errors import Bucket, bucket_of
from proctor.event.model import Tokens, UsageAuthority
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import (
    AttemptRecord,
    AttemptReport,
    Expectation,
    FailureExcerpt,
    GateReason,
    Judged,
    Part,
    why_unjudged,
)
from proctor.ids import AttemptId, RuntimeId

_MAX_VIOLATIONS = 3
_VIOLATION_CHARS = 200

Count = Annotated[int, msgspec.Meta(ge=0)]

PASSED: Final = "passed"
"""Verified by its probes; or, without probes, completed with the answer, result, trace and workspace as stated."""
FAILED: Final = "failed"
"""Judged, and not passed, for reasons that lie with the agent."""
UNKNOWN: Final = "unknown"
"""No probe could judge it; or it has no probes, and the mission states nothing that could be judged."""

Result = Literal["passed", "failed", "unknown", "infra", "quota", "auth", "harness", "gate"]
"""PASSED, FAILED, UNKNOWN, or the bucket of a failure that is not the agent's."""

SCORED: Final = frozenset({PASSED, FAILED})
"""The results that a rate is made of."""


class AttemptSummary(Part, frozen=True, kw_only=True, gc=False):
    """What the sealed files of an attempt say about it. Derived from those files only; null means unknown."""

    runtime_id: RuntimeId
    """The runtime that drove the agent."""
    is_scripted: bool
    """Whether the scripted model answered the agent, and not a real one."""
    outcome: Outcome
    """How the attempt ended, whether or not the task was done."""
    code: str | None
    """The error code that ended it, if one did."""
    detail: str | None
    """What was observed when that code was set."""
    claimed: bool | None
    """Whether the agent said that the task is done."""
    verified: bool | None
    """Whether the required probes verified the task."""
    judged: Judged | None = None
    """Where that was established: `outside` the product's processes by Proctor, or only `inside` them, where it could
    be forged; null unless `verified` is true."""
    reasons: tuple[str, ...]
    """Why it is not verified."""
    reason_codes: tuple[GateReason, ...]
    """The kind of each of `reasons`."""
    expectation: Expectation
    """Whether the attempt meets the mission's `expect`."""
    result: Result
    """What the attempt adds to a rate if it counts: `passed` or `failed`; `unknown` if it could not be judged; or the
    bucket of a failure that is not the agent's."""
    is_expected: bool | None
    """Whether the attempt came out as expected. A mission without `expect` is expected to pass its probes; null if it
    has none, or if they could not judge it."""
    unjudged: GateReason | None
    """Why the mission's probes could not judge it, for reasons that do not lie with the agent; null if they did."""
    required_probes: Count
    """How many probes the mission requires."""
    duration_ms: Count
    """Time from the start of the attempt to its seal, in milliseconds."""
    retry_after_ms: int | None
    """How long the provider asked to wait, from the end of the attempt."""
    tokens: Tokens | None
    """Tokens used by all turns."""
    tokens_authority: UsageAuthority | None
    """The source of the token counts."""
    turns: Count
    """Turns that the agent began."""
    tool_calls: Count | None
    """Tool calls of every kind; null if the runtime cannot see tool calls."""
    mcp_calls: Count | None
    """Tool calls to MCP servers; null if the runtime cannot see tool calls."""
    tool_failures: Count | None
    """Tool calls that failed; null if the runtime cannot see tool calls."""
    tool_retries: Count | None
    """Tool calls equal to an earlier one that failed; null if the runtime cannot see tool calls."""
    tool_ms: Count | None
    """Time spent in tool calls with a recorded start and end, in milliseconds."""
    tool_output_bytes: Count | None
    """Bytes that tool calls printed; null if the runtime cannot see tool calls."""
    is_stuck: bool | None
    """Whether the agent repeated a few calls without progress; null if the runtime cannot see tool calls."""
    has_changed_files: bool
    """Whether the workspace differs from the one the attempt started with."""
    policy_violations: Count | None
    """Tool calls that the flow's `tools` policy does not allow; null if the runtime cannot see tool calls."""
    first_violations: tuple[str, ...]
    """The first of those calls, shortened."""
    degraded: str | None = None
    """Why the context engine did not apply, or not in full; null if it did, or without an engine."""
    failure: FailureExcerpt | None = None
    """What shows why it failed; null if it did not."""
    continues: AttemptId | None = None
    """The attempt of its trial that it continues after a wait; null if it started fresh."""

    @property
    def has_probes(self) -> bool:
        """Whether the mission requires probes."""
        return self.required_probes > 0

    @property
    def has_begun(self) -> bool:
        """Whether the agent accepted a turn."""
        return self.turns > 0

    @property
    def is_unjudged(self) -> bool:
        """Whether the mission has probes and the result is unknown. A failure that the mission expects is not."""
        return self.has_probes and self.result == UNKNOWN and (self.unjudged is not None or self.code is None)

    @property
    def has_failed(self) -> bool:
        """Whether it is not as expected, or did not complete: `run --failed` selects it, `--fail-fast` stops at it."""
        if self.expectation.met or self.outcome in (Outcome.CANCELLED, Outcome.UNKNOWN):
            return False
        is_completed = self.outcome is Outcome.COMPLETED and self.result in (PASSED, FAILED, UNKNOWN)
        return self.is_expected is False or not is_completed


def classify_result(
    outcome: Outcome, code: str | None, *, is_right: bool | None, met: bool | None, has_begun: bool = True
) -> Result:
    """Return PASSED, FAILED, UNKNOWN, or the bucket of a failure that is not the agent's.

    `is_right` is what the probes found, or whether the content is as stated; `met` whether all expectations are met;
    `has_begun` whether the agent accepted a turn.
    """
    bucket = None if code is None else bucket_of(code, has_begun=has_begun)
    if bucket not in (None, Bucket.AGENT):
        # A failure that the mission expects, such as a crash, says nothing about the machine either.
        return UNKNOWN if met else cast("Result", bucket.value)
    if is_right is not None:
        return PASSED if is_right else FAILED
    return UNKNOWN if outcome in (Outcome.COMPLETED, Outcome.UNKNOWN) else FAILED


def _classify(record: AttemptRecord, report: AttemptReport, *, unjudged: GateReason | None) -> Result:
    """Return the result of an attempt by its probes, or else by what the mission states about its content."""
    outcome, expectation = report.outcome, report.expectation
    is_right = report.verified if record.required_probes else expectation.content_holds
    if unjudged is not None or (is_right is None and not record.required_probes):
        # Whatever the agent did, it could not have passed: even a crash says nothing about its rate. Without probes
        # and with nothing stated, it could only fail.
        outcome, is_right = Outcome.UNKNOWN, None
    elif not record.required_probes:
        is_right = is_right and outcome is Outcome.COMPLETED
    elif GateReason.UNCHANGED in report.reason_codes:
        is_right = False  # otherwise an agent could avoid a failure by doing nothing
    return classify_result(
        outcome, report.code, is_right=is_right, met=expectation.met, has_begun=report.metrics.turns > 0
    )


def _is_expected(record: AttemptRecord, report: AttemptReport, *, unjudged: GateReason | None) -> bool | None:
    expectation = report.expectation
    if expectation.met is not None or not record.required_probes or expectation.is_undecided:
        return expectation.met
    return None if unjudged is not None else report.verified


def summarize(record: AttemptRecord, report: AttemptReport) -> AttemptSummary:
    """Derive the summary of an attempt from attempt.json and attempt.report.json."""
    metrics, usage = report.metrics, report.metrics.usage
    unjudged = why_unjudged(report.verified, report.reason_codes) if record.required_probes else None
    return AttemptSummary(
        runtime_id=record.runtime_id,
        is_scripted=record.is_scripted,
        outcome=report.outcome,
        code=report.code,
        detail=report.detail,
        claimed=report.claimed,
        verified=report.verified,
        judged=report.judged,
        reasons=report.reasons,
        reason_codes=report.reason_codes,
        expectation=report.expectation,
        result=_classify(record, report, unjudged=unjudged),
        is_expected=_is_expected(record, report, unjudged=unjudged),
        unjudged=unjudged,
        required_probes=len(record.required_probes),
        duration_ms=report.duration_ms,
        retry_after_ms=report.retry_after_ms,
        tokens=None if usage is None else usage.tokens,
        tokens_authority=None if usage is None else usage.authority,
        turns=metrics.turns,
        tool_calls=metrics.tool_calls,
        mcp_calls=None if metrics.tool_calls is None else metrics.tool_calls_by_kind.get("mcp", 0),
        tool_failures=metrics.tool_failures,
        tool_retries=metrics.tool_retries,
        tool_ms=metrics.tool_ms,
        tool_output_bytes=metrics.tool_output_bytes,
        is_stuck=metrics.is_stuck,
        has_changed_files=report.has_changed_files,
        policy_violations=None if report.policy_violations is None else len(report.policy_violations),
        first_violations=tuple(each[:_VIOLATION_CHARS] for each in (report.policy_violations or ())[:_MAX_VIOLATIONS]),
        degraded=report.degraded,
        failure=report.failure,
        continues=record.continues,
    )
