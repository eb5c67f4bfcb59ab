"""RESULTS.md: a report as a Markdown page."""

from collections.abc import Iterator, Sequence

from proctor.report.attempt_columns import COLUMNS, ending, verified_word
from proctor.report.campaign import CampaignReport
from proctor.report.failures import failed_rows, failure_lines
from proctor.report.format_values import explain_unmet, markdown_text, plain_error
from proctor.report.row import AttemptRow
from proctor.report.sections import conclude, facts, flow_note, flow_table, mismatch_lines, repeat_note, sections
from proctor.report.text import label_heading, labels

_FOOT = (
    "Claimed is what the agent said about its task; verified is what its probes found. Passed means verified, or, in "
    "brackets, that a mission without probes has the answer, result, trace and workspace that it states. `report.json` "
    "holds the same."
)

_MAX_EXPLAINED = 20
"""How many failed attempts the page explains in full."""


def render_markdown(report: CampaignReport) -> str:
    """Render a report. The same report gives the same bytes."""
    lines = [
        f"# {markdown_text(report.campaign_id or 'attempts')}",
        "",
        f"{markdown_text(conclude(report), limit=2000)} Verdict: **{report.verdict}** (exit {report.exit}).",
        "",
        *(f"- {markdown_text(line)}" for line in mismatch_lines(report)),
        *(f"- {name}: {markdown_text(value)}" for name, value in facts(report)),
    ]
    headings, flows = flow_table(report)
    lines += ["", f"| {' | '.join(headings)} |", f"|---|{'--:|' * (len(headings) - 1)}"]
    lines += [_table_row(row) for row in flows]
    for note in filter(None, (flow_note(report), repeat_note(report))):
        lines += ["", f"{note}."]
    rows = report.counted_attempts
    label = labels(rows)
    if rows:
        lines += ["", f"| {' | '.join((label_heading(rows), *(column.name for column in COLUMNS), 'evidence'))} |"]
        lines.append(f"|---|{''.join('--:|' if column.is_number else '---|' for column in COLUMNS)}---|")
        lines += [_table_row((label(row), *_attempt(row))) for row in rows]
    why = [f"- {markdown_text(label(row))}: {markdown_text(text)}" for row in rows for text in _explanations(row)]
    if why:
        lines += ["", "## Why", "", *why]
    failed = failed_rows(report)
    for row in failed[:_MAX_EXPLAINED]:
        # As indented code, in which nothing is markup, whatever an agent or a probe wrote.
        lines += ["", f"### {markdown_text(label(row))}", "", *(f"    {line}".rstrip() for line in failure_lines(row))]
    if len(failed) > _MAX_EXPLAINED:
        lines += ["", f"{len(failed) - _MAX_EXPLAINED:,} more failed attempts: see `proctor attempt explain`."]
    for section in sections(report):
        if section.lines:
            lines += ["", f"## {markdown_text(section.title)}", ""]
            lines += [f"- {markdown_text(line, limit=2000)}" for line in section.lines]
    counted = {row.ref for row in rows}
    if others := [row for row in report.attempts if row.ref not in counted]:
        lines += ["", "## Not counted", "", "Other attempts of these trials:", ""]
        lines += [
            f"- {markdown_text(row.ref)}: {markdown_text(' '.join(filter(None, (ending(row).plain, row.code))))}"
            for row in others
        ]
    return "\n".join([*lines, "", _FOOT, ""])


def _table_row(values: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, values))} |"


def _attempt(row: AttemptRow) -> Iterator[str]:
    for column in COLUMNS:
        value = column.value(row)
        yield f"**{value.plain}**" if "bold" in str(value.style) else value.plain
    yield row.dir


def _explanations(row: AttemptRow) -> Iterator[str]:
    yield from (f"{finding.code}: {finding.file} {finding.detail}" for finding in row.findings)
    if row.code:
        yield f"{row.code} ({row.bucket}): {plain_error(row.detail or '')}"
    if row.todo:
        yield f"to do: {row.todo}"
    yield from map(explain_unmet, row.unmet)
    yield from (f"verified {verified_word(row.verified)}: {reason}" for reason in row.reasons)
