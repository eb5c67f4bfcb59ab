"""RESULTS.md: a report for people who read it later, or elsewhere."""

from proctor.report.format_values import count, duration, markdown_text, plain_error, plural, yes_no
from proctor.report.row import Report
from proctor.report.text import conclude, ending, labels
from proctor.report.trials import speakers


def render_markdown(report: Report) -> str:
    """The same bytes for the same report."""
    rows = speakers(report.attempts)
    counted, label = {row.ref for row in rows}, labels(rows)
    lines = [
        f"# {markdown_text(report.campaign_id or 'attempts')}",
        "",
        f"{conclude(report)} Verdict: **{report.verdict}** (exit {report.exit}).",
        "",
        "| mission/flow | runtime | outcome | claimed | verified | tools | tokens | time | expectation | evidence |",
        "|---|---|---|---|---|--:|--:|--:|---|---|",
    ]
    for row in rows:
        verified = "**no**" if row.verified is False else yes_no(row.verified, none="unknown")
        fields = (
            *(label(row), row.runtime_id or "?", ending(row).plain, yes_no(row.claimed, none="–"), verified),
            *(count(row.tool_calls), count(row.tokens)),
            duration(row.duration_ms),
            *(yes_no(row.is_expected, none="–").replace("yes", "met").replace("no", "**missed**"), row.dir),
        )
        lines.append(f"| {' | '.join(markdown_text(each) for each in fields)} |")
    why = [
        f"- {markdown_text(label(row))}: {markdown_text(text)}"
        for row in rows
        for text in (
            *(f"{finding.code}: {finding.file} {finding.detail}" for finding in row.findings),
            *((f"{row.code} ({row.bucket}): {plain_error(row.detail or '')}",) if row.code else ()),
            *((f"to do: {row.todo}",) if row.todo else ()),
            *(f"expectation missed: {miss}" for miss in row.misses),
            *(f"{'not verified' if row.verified is False else 'cannot be verified'}: {each}" for each in row.reasons),
        )
    ]
    if why:
        lines += ["", "## Why", "", *why]
    if others := [row for row in report.attempts if row.ref not in counted]:
        lines += ["", "## Not counted", "", "Other attempts of these trials, kept as they are:", ""]
        lines += [
            f"- {markdown_text(row.ref)}: {markdown_text(' '.join(filter(None, (ending(row).plain, row.code))))}"
            for row in others
        ]
    if report.missing_trials:
        lines += ["", f"{plural(len(report.missing_trials), 'trial')} never tried: {', '.join(report.missing_trials)}."]
    for gate in report.gates:
        if gate.blocked:
            lines += [
                "",
                f"## Blocked by the {gate.name} gate",
                "",
                *(f"- {markdown_text(line)}" for line in gate.lines()),
            ]
    if report.findings:
        lines += ["", *(f"- {each.code}: {markdown_text(f'{each.file} {each.detail}')}" for each in report.findings)]
    foot = "Claimed is what the agent said of itself; verified is what a probe found. `report.json` holds the same."
    return "\n".join([*lines, "", foot, ""])
