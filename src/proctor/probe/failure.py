"""What shows why an attempt failed: the probes that did not pass, and what the agent changed. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from proctor.evidence.artifacts import FailedProbe, FailureExcerpt
from proctor.ids import Digest
from proctor.probe.model import Phase, ProbeRow, Verdict
from proctor.spec.argv import shell_command
from proctor.workspace.excerpt import excerpt, last_lines, shorten

MAX_PROBES: Final = 2
MAX_OUTPUT_LINES: Final = 10
MAX_DIFF_LINES: Final = 20
MAX_DIFF_FILES: Final = 5
_LINE_CHARS: Final = 160
_COMMAND_CHARS: Final = 300
_SUMMARY_CHARS: Final = 200


def failure_of(
    rows: Sequence[ProbeRow], diff: str, *, workspace_digest: Digest, verified: bool | None, is_met: bool | None
) -> FailureExcerpt | None:
    """Return the excerpt that reports show for an attempt, bounded in size; None if it did not fail.

    `rows` and `diff` are as they are in the evidence: redacted.
    """
    failed = failed_rows(rows, workspace_digest=workspace_digest)
    is_failed = verified is False or is_met is False or (verified is None and bool(failed))
    if not is_failed:
        return None
    return FailureExcerpt(
        probes=tuple(map(describe_row, failed[:MAX_PROBES])),
        probes_left_out=max(0, len(failed) - MAX_PROBES),
        diff=excerpt(diff, max_lines=MAX_DIFF_LINES, max_files=MAX_DIFF_FILES, max_chars=_LINE_CHARS),
    )


def failed_rows(rows: Iterable[ProbeRow], *, workspace_digest: Digest) -> list[ProbeRow]:
    """Return the latest row of each probe on the workspace as the agent left it, if it did not pass there."""
    latest = {row.index: row for row in rows if row.phase is Phase.FINAL and row.workspace_digest == workspace_digest}
    return [row for _, row in sorted(latest.items()) if is_failed(row)]


def is_failed(row: ProbeRow) -> bool:
    """Return whether a probe did not pass."""
    return row.verdict is not Verdict.PASS or row.mutated


def describe_row(row: ProbeRow, *, max_lines: int = MAX_OUTPUT_LINES) -> FailedProbe:
    """Return a probe's row with the last lines of its output; each stream gets what the other one leaves."""
    streams = [
        last_lines(text, max_lines=max_lines, max_chars=_LINE_CHARS) for text in (row.stdout_tail, row.stderr_tail)
    ]
    least = [min(len(stream), max_lines // 2) for stream in streams]
    stdout, stderr = (
        stream[len(stream) - min(len(stream), max_lines - other) :]
        for stream, other in zip(streams, reversed(least), strict=True)
    )
    return FailedProbe(
        index=row.index,
        command=shorten(shell_command(row.argv), _COMMAND_CHARS) if row.argv else "",
        verdict=row.verdict.value,
        summary=shorten(row.summary, _SUMMARY_CHARS),
        exit_code=row.exit_code,
        signal=row.signal,
        timed_out=row.timed_out,
        stdout=stdout,
        stderr=stderr,
    )
