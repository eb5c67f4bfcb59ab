"""RESULTS.md: a report for people who read it later, or elsewhere."""

from proctor.report.cells import speakers
from proctor.report.row import Report
from proctor.report.text import conclude, ending, labels
from proctor.report.words import count, duration, legible, one_line, plain_error, plural, yes_no


def render_markdown(report: Report) -> str:
    """The same bytes for the same report."""
    rows = speakers(report.attempts)
    counted, label = {row.ref for row in rows}, labels(rows)
    lines = [
        f"# {_cell(report.campaign_id or 'attempts')}",
        "",
        f"{conclude(report)} Verdict: **{report.verdict}** (exit {report.exit}).",
        "",
        "| mission/flow | runtime | outcome | claimed | verified | tools | tokens | time | expectation | evidence |",
        "|---|---|---|---|---|--:|--:|--:|---|---|",
    ]
    for row in rows:
        verified = "**no**" if row.verified is False else yes_no(row.verified, none="unknown")
        cells = (
            *(label(row), row.runtime or "?", ending(row).plain, yes_no(row.claimed, none="–"), verified),
            *(count(row.tool_calls), count(row.tokens), duration(row.duration_ms)),
            *(yes_no(row.expectation_met, none="–").replace("yes", "met").replace("no", "**missed**"), row.dir),
        )
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    why = [
        f"- {_cell(label(row))}: {_cell(text)}"
        for row in rows
        for text in (
            *(f"{problem.code}: {problem.file} {problem.detail}" for problem in row.problems),
            *((f"{row.code} ({row.bucket}): {plain_error(row.detail or '')}",) if row.code else ()),
            *((f"to do: {row.todo}",) if row.todo else ()),
            *(f"expectation missed: {miss}" for miss in row.misses),
            *(f"{'not verified' if row.verified is False else 'cannot be verified'}: {each}" for each in row.reasons),
        )
    ]
    if why:
        lines += ["", "## Why", "", *why]
    if others := [row for row in report.attempts if row.ref not in counted]:
        lines += ["", "## Not counted", "", "Other attempts of these cells, kept as they are:", ""]
        lines += [
            f"- {_cell(row.ref)}: {_cell(' '.join(filter(None, (ending(row).plain, row.code))))}" for row in others
        ]
    if report.missing_cells:
        lines += ["", f"{plural(len(report.missing_cells), 'cell')} never tried: {', '.join(report.missing_cells)}."]
    if report.problems:
        lines += ["", *(f"- {each.code}: {_cell(f'{each.file} {each.detail}')}" for each in report.problems)]
    foot = "Claimed is what the agent said of itself; verified is what a probe found. `report.json` holds the same."
    return "\n".join([*lines, "", foot, ""])


def _cell(text: str) -> str:
    """No text of an agent's may begin markup of its own."""
    escaped = one_line(legible(text), limit=300).replace("\\", "\\\\")
    for char in "|<>`[]":
        escaped = escaped.replace(char, f"\\{char}")
    return escaped
