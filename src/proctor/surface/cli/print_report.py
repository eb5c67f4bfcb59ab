"""A campaign's report on a terminal, as `run`, `report` and `campaign report` print it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from proctor.report.campaign import CampaignReport
from proctor.report.format_values import legible
from proctor.surface.cli.output import Output

if TYPE_CHECKING:
    from rich.console import RenderableType

# Renderers are imported where they are used: a report as JSON needs none of them.


def print_report(output: Output, report: CampaignReport, *, title: str, footer: Iterable[tuple[str, str]] = ()) -> None:
    """Print a report. `footer` are names and values; values are not wrapped, so that they can be copied."""
    body, rows, conclusion = _render(report, title=title, footer=footer)
    output.show(body, "")
    if rows:
        output.show(*rows, "", is_wrapped=False)
    output.show(conclusion)


def plain_report(output: Output, report: CampaignReport, *, title: str) -> str:
    """Return a report as text without colour."""
    body, _, conclusion = _render(report, title=title, footer=())
    return output.plain(body, "", conclusion)


def _render(
    report: CampaignReport, *, title: str, footer: Iterable[tuple[str, str]]
) -> tuple["RenderableType", list["RenderableType"], "RenderableType"]:
    from rich.text import Text

    from proctor.report.text import render_conclusion, render_report

    rows: list[RenderableType] = [Text.assemble((f"  {name:10}", "dim"), legible(value)) for name, value in footer]
    return render_report(report, title=title), rows, render_conclusion(report)
