"""The summary of a sealed attempt: one struct for the ledger, lists, reports, progress rows and statements."""

from typing import Annotated

import msgspec

from proctor.event.model import Tokens, UsageAuthority
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Expectation, Part
from proctor.ids import RuntimeId

_MAX_VIOLATIONS = 3
_VIOLATION_CHARS = 200

Count = Annotated[int, msgspec.Meta(ge=0)]


class AttemptSummary(Part, frozen=True, kw_only=True, gc=False):
    """What the sealed files of an attempt say about it. Derived from those files only; null means unknown."""

    runtime_id: RuntimeId
    """The runtime that drove the agent."""
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
    reasons: tuple[str, ...]
    """Why it is not verified."""
    expectation: Expectation
    """Whether the attempt meets the mission's `expect`."""
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
    tool_calls: Count
    """Tool calls of every kind."""
    mcp_calls: Count
    """Tool calls to MCP servers."""
    tool_failures: Count
    """Tool calls that failed."""
    tool_retries: Count
    """Tool calls equal to an earlier one that failed."""
    tool_ms: Count | None
    """Time spent in tool calls with a recorded start and end, in milliseconds."""
    tool_output_bytes: Count
    """Bytes that tool calls printed."""
    is_stuck: bool
    """Whether the agent repeated a few calls without progress."""
    has_changed_files: bool
    """Whether the workspace differs from the one the attempt started with."""
    policy_violations: Count
    """Tool calls that the flow's `tools` policy does not allow."""
    first_violations: tuple[str, ...]
    """The first of those calls, shortened."""

    @property
    def has_probes(self) -> bool:
        """Whether the mission requires probes."""
        return self.required_probes > 0

    @property
    def is_expected(self) -> bool | None:
        """Whether the attempt came out as expected. A mission without `expect` is expected to pass its probes; None if
        it has none."""
        met = self.expectation.met
        return self.verified if met is None and self.has_probes else met


def summarize(record: AttemptRecord, report: AttemptReport) -> AttemptSummary:
    """Derive the summary of an attempt from attempt.json and attempt.report.json."""
    metrics, usage = report.metrics, report.metrics.usage
    return AttemptSummary(
        runtime_id=record.runtime_id,
        outcome=report.outcome,
        code=report.code,
        detail=report.detail,
        claimed=report.claimed,
        verified=report.verified,
        reasons=report.reasons,
        expectation=report.expectation,
        required_probes=len(record.required_probes),
        duration_ms=report.duration_ms,
        retry_after_ms=report.retry_after_ms,
        tokens=None if usage is None else usage.tokens,
        tokens_authority=None if usage is None else usage.authority,
        turns=metrics.turns,
        tool_calls=metrics.tool_calls,
        mcp_calls=metrics.tool_calls_by_kind.get("mcp", 0),
        tool_failures=metrics.tool_failures,
        tool_retries=metrics.tool_retries,
        tool_ms=metrics.tool_ms,
        tool_output_bytes=metrics.tool_output_bytes,
        is_stuck=metrics.is_stuck,
        has_changed_files=report.has_changed_files,
        policy_violations=len(report.policy_violations),
        first_violations=tuple(each[:_VIOLATION_CHARS] for each in report.policy_violations[:_MAX_VIOLATIONS]),
    )
