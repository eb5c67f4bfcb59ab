"""Runtimes and the doctor's findings, for a terminal."""

from collections.abc import Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.report.words import legible
from proctor.surface.cli.blocks import pairs
from proctor.surface.health import Finding
from proctor.surface.programs import Program

_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def render_programs(programs: Sequence[Program]) -> RenderableType:
    parts: list[RenderableType] = []
    for each in programs:
        title = Text(legible(each.id), style="bold").append(f"   {each.transport or ''}", style="dim")
        parts += [title, pairs(_facts(each)), Text()]
    return Group(*parts[:-1]) if parts else Text("No runtime is installed.")


def _facts(each: Program) -> list[tuple[str, RenderableType]]:
    rows: list[tuple[str, RenderableType]] = []
    if each.claims is not None:
        claims = msgspec.structs.asdict(each.claims)
        rows.append(("claims", Text(", ".join(name.replace("_", " ") for name, can in claims.items() if can))))
        rows.append(("cannot", Text(", ".join(name.replace("_", " ") for name, can in claims.items() if not can))))
    if each.program is not None:
        locked = {True: "yes: as its package's RECORD says", False: "NO: not the file its package names", None: "no"}
        rows += [
            ("program", Text(legible(each.program.path))),
            ("found by", Text(each.program.source)),
            ("version", Text(each.program.version or "known when it runs")),
            ("sha256", Text(each.program.sha256)),
            ("locked", Text(locked[each.is_locked], style="bold red" if each.is_locked is False else "")),
        ]
    if each.problem is not None:
        rows += [
            ("program", Text(legible(each.problem.what), style="red")),
            ("to do", Text(each.problem.todo)),
            ("code", Text(each.problem.code)),
        ]
    return rows


def render_findings(findings: Sequence[Finding]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for each in findings:
        lines = Text(legible(each.what))
        for line in each.more:
            lines.append(f"\n{legible(line)}", style="dim")
        if each.todo is not None:
            lines.append(f"\n{each.todo}", style=_STYLE[each.status])
        grid.add_row(Text(each.status, style=_STYLE[each.status]), Text(legible(each.name)), lines)
    bad = [each.name for each in findings if each.status == "fail"]
    verdict = Text(f"Wrong: {', '.join(bad)}.", style="bold red") if bad else Text("All is well.", style="green")
    return Group(grid, Text(), verdict)
