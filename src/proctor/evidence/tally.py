"""The numbers of one attempt that reports add up, as the ledger keeps them beside it. Unknown is None, never nought."""

import msgspec

from proctor.evidence.artifacts import AttemptReport


class Tally(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Taken from the sealed report and nowhere else, so that the ledger can be made again.

    New numbers come last: what an older Proctor wrote still reads.
    """

    tool_calls: int
    tool_failures: int
    turns: int
    output_bytes: int
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    tokens_authority: str | None


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
    )
