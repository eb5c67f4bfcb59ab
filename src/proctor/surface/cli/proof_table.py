"""Render the results of the conformance suite for a terminal."""

from collections import Counter

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.report.format_values import legible
from proctor.surface.cli.blocks import pairs
from proctor.surface.prove import ConformanceResult
from proctor.testing.conformance import CaseVerdict, Result

_STYLE = {
    Result.PASSED: "green",
    Result.FAILED: "bold red",
    Result.REFUSED: "dim",
    Result.NOT_APPLICABLE: "yellow",
}


def render_verdict(verdict: CaseVerdict) -> RenderableType:
    why = "" if verdict.what is None else f"  {legible(verdict.what)}"
    head = Text.assemble((f"{verdict.result:15}", _STYLE[verdict.result]), f"{verdict.case:20}")
    return head.append(f"{verdict.duration_ms / 1000:6.1f} s", style="dim").append(why)


def render_summary(proven: ConformanceResult) -> RenderableType:
    where = ", ".join(part for part in (proven.version, proven.transport, proven.isolation) if part)
    title = Text(legible(proven.id), style="bold").append(f"   {where}", style="dim")
    rows: list[tuple[str, RenderableType]] = []
    if proven.program is not None:
        rows.append(("program", Text(f"{legible(proven.program.path)}  sha256 {proven.program.sha256[:12]}")))
    if proven.problem is not None:
        rows.append(("problem", Text(legible(proven.problem.what), style="red")))
        rows.append(("to do", Text(proven.problem.todo)))
        rows.append(("code", Text(proven.problem.code)))
    if proven.verdicts:
        counts = Counter(each.result for each in proven.verdicts)
        parts = [f"{counts[result]} {result}" for result in Result if counts[result]]
        style = _STYLE[Result.FAILED if counts[Result.FAILED] else Result.PASSED]
        rows.append(("cases", Text(", ".join(parts), style=style)))
    return Group(Text(), title, pairs(rows))
