"""The numbers of one attempt that reports add up, as the ledger keeps them beside it. Unknown is None, never nought."""

import msgspec

from proctor.evidence.artifacts import AttemptReport

_MOST_TOLD = 3
_TOLD_CHARS = 200


class Tally(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Taken from the sealed report and nowhere else, so that the ledger can be made again.

    New numbers come last: what an older Proctor wrote still reads. Of violations the first few are kept in words.
    """

    tool_calls: int
    tool_failures: int
    turns: int
    output_bytes: int
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    tokens_authority: str | None
    tool_retries: int | None = None
    longest_streak: int | None = None
    is_stuck: bool | None = None
    tool_ms: int | None = None
    mcp_calls: int | None = None
    has_changed_files: bool | None = None
    policy_violations: int | None = None
    first_violations: tuple[str, ...] = ()


def tally_of(report: AttemptReport) -> Tally:
    """What a report comes to."""
    metrics, usage = report.metrics, report.metrics.usage
    tokens = None if usage is None else usage.tokens
    return Tally(
        tool_calls=metrics.tool_calls,
        tool_failures=metrics.tool_failures,
        turns=metrics.turns,
        output_bytes=metrics.tool_output_bytes,
        input_tokens=None if tokens is None else tokens.input,
        cached_tokens=None if tokens is None else tokens.cached_input,
        output_tokens=None if tokens is None else tokens.output,
        tokens_authority=None if usage is None else usage.authority.value,
        tool_retries=metrics.tool_retries,
        longest_streak=metrics.longest_streak,
        is_stuck=metrics.is_stuck,
        tool_ms=metrics.tool_ms,
        mcp_calls=metrics.tool_calls_by_kind.get("mcp", 0),
        has_changed_files=report.has_changed_files,
        policy_violations=None if report.policy_violations is None else len(report.policy_violations),
        first_violations=tuple(each[:_TOLD_CHARS] for each in (report.policy_violations or ())[:_MOST_TOLD]),
    )
