"""Why results failed, in words: the failing probes with the end of their output, and what the agent changed."""

from collections.abc import Iterator, Sequence
from typing import Final

from proctor.errors import Exit
from proctor.evidence.artifacts import DiffExcerpt, FailedProbe, FailureExcerpt
from proctor.report.campaign import CampaignReport
from proctor.report.format_values import legible, one_line, plural
from proctor.report.row import AttemptRow
from proctor.report.verdict import judge_attempt

INDENT: Final = "  "


def failed_rows(report: CampaignReport) -> list[AttemptRow]:
    """Return the counted attempts that are not as expected and whose evidence shows why, in plan order."""
    return [row for row in report.counted_attempts if _failure(row) is not None]


def _failure(row: AttemptRow) -> FailureExcerpt | None:
    failure = None if row.summary is None or row.is_invalid else row.summary.failure
    return None if judge_attempt(row) is Exit.OK else failure


def failure_lines(row: AttemptRow) -> list[str]:
    """Return why an attempt failed; nothing if its evidence does not show it. No line has a control character."""
    failure = _failure(row)
    return [] if failure is None else list(_lines(failure))


def _lines(failure: FailureExcerpt) -> Iterator[str]:
    for probe in failure.probes:
        yield from probe_lines(probe)
    if failure.probes_left_out:
        yield f"… and {plural(failure.probes_left_out, 'more probe')} that did not pass"
    if failure.diff is None:
        yield "changes to the workspace: none"
    else:
        yield from diff_lines(failure.diff)


def probe_lines(probe: FailedProbe) -> Iterator[str]:
    """Yield a probe's command, how it ended, and the end of its output."""
    name = f"`{one_line(probe.command, limit=120)}`" if probe.command else f"probe {probe.index + 1}"
    could_not = "" if probe.verdict == "fail" else "could not judge: "
    yield f"{name}: {could_not}{one_line(probe.summary, limit=160) or probe.verdict}"
    yield from _block(probe.stdout)
    if probe.stdout and probe.stderr:
        yield f"{INDENT}stderr:"
    yield from _block(probe.stderr)
    if probe.exit_code is not None and not probe.stdout and not probe.stderr:
        yield f"{INDENT}(no output)"


def diff_lines(diff: DiffExcerpt) -> Iterator[str]:
    """Yield what the agent changed, source files first, and how much is not shown."""
    for file in diff.files:
        yield f"changed: {one_line(file.file, limit=120)} (+{file.added:,} -{file.removed:,})"
        yield from _block(file.lines)
        if file.lines_left_out:
            yield f"{INDENT}… {plural(file.lines_left_out, 'more line')}"
    if diff.files_left_out:
        yield f"… and {plural(diff.files_left_out, 'more changed file')}"
    if diff.generated_files:
        files, lines = plural(diff.generated_files, "generated file"), plural(diff.generated_lines, "changed line")
        yield f"not shown: {files} ({lines})"
    if diff.other_paths:
        yield f"not shown: {plural(diff.other_paths, 'changed folder, link or reference')}"


def _block(lines: Sequence[str]) -> Iterator[str]:
    # A line of output may hold characters that end a line elsewhere, and a tab as wide as the terminal likes.
    return (f"{INDENT}{legible(line).replace(chr(10), ' ').expandtabs(4)}".rstrip() for line in lines)
