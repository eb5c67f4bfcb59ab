"""A campaign's report for a terminal, and for a page of Markdown."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from proctor.errors import Exit
from proctor.report.campaign import CampaignReport
from proctor.report.campaign_sections import conclude_campaign, facts, flow_table, sections
from proctor.report.format_values import USED_UP, legible, markdown_text

if TYPE_CHECKING:
    from rich.console import RenderableType

# Beginnings of headings; the first to go stands first.
_GIVES_WAY = ("p95", "pass^", "pass@", "tokens", "cost", "p50", "trials", "rate")


def next_steps(report: CampaignReport) -> Iterator[str]:
    """What can be done about it."""
    for failed in report.failures[:1]:
        yield f"proctor attempt explain {failed.run_id}/{failed.attempt_id}"
    can_go_on = not report.is_running and not report.is_canary
    if report.is_running:
        yield "proctor campaign status " + report.campaign_id
    if can_go_on and report.missing:
        if report.runs and (todo := USED_UP.get(report.runs[-1].how or "")):
            yield todo
        elif report.spec_file is not None:
            yield "proctor campaign resume " + report.campaign_id
    if can_go_on and report.score.infra:
        yield "proctor retry --only infra " + report.campaign_id
    elif can_go_on and not report.missing and not report.is_examined:
        yield "proctor campaign publish-check " + report.campaign_id


def render_campaign(report: CampaignReport) -> "RenderableType":
    """All but what to do next."""
    # Imported when used: it takes as long as the report itself.
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from proctor.report.columns import LEAST_NAME, NamedTable
    from proctor.report.text import STYLE_OF

    grid = Table.grid(padding=(0, 2))
    for name, value in facts(report):
        grid.add_row(Text(name, style="dim"), Text(legible(value)))
    headings, rows = flow_table(report)
    gives_way = [each for beginning in _GIVES_WAY for each in headings if each.startswith(beginning)]
    table = NamedTable(name=headings[0], gives_way=gives_way, numbers=headings[1:], least_name=LEAST_NAME)
    for row in rows:
        flow, *values = (Text(legible(each)) for each in row)
        table.add(flow, dict(zip(headings[1:], values, strict=True)))
    parts: list[RenderableType] = [
        Text(legible(report.campaign_id), style="bold"),
        Padding(grid, (0, 0, 0, 2)),
        Text(),
        Padding(table, (0, 0, 0, 2)),
        Text(),
    ]
    for section in sections(report):
        if section.lines:
            title = Text(legible(section.title), style="bold red" if section.is_bad else "bold")
            parts.append(Padding(title, (0, 0, 0, 2)))
            parts += [Padding(Text(legible(line)), (0, 0, 0, 4)) for line in section.lines]
    conclusion = Text(conclude_campaign(report), style=STYLE_OF[Exit(report.exit)])
    return Group(*parts, Text(), Padding(conclusion, (0, 0, 0, 2)))


def campaign_markdown(report: CampaignReport) -> str:
    """The same bytes for the same report."""
    lines = [f"# {markdown_text(report.campaign_id)}", ""]
    lines += [f"{markdown_text(conclude_campaign(report))} Verdict: **{report.verdict}** (exit {report.exit}).", ""]
    lines += [f"- {name}: {markdown_text(value)}" for name, value in facts(report)]
    headings, rows = flow_table(report)
    lines += ["", f"| {' | '.join(headings)} |", f"|---|{'--:|' * (len(headings) - 1)}"]
    lines += [f"| {' | '.join(markdown_text(each) for each in row)} |" for row in rows]
    for section in sections(report):
        if section.lines:
            lines += [
                "",
                f"## {markdown_text(section.title)}",
                "",
                *(f"- {markdown_text(line, limit=2000)}" for line in section.lines),
            ]
    foot = "Scored is what passed or failed by the agent's own doing. Rates have Wilson intervals of 95 %."
    return "\n".join([*lines, "", foot, ""])
