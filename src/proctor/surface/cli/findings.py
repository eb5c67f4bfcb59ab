"""What an examination of evidence found, for a terminal."""

from collections import Counter

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proctor.errors import CODES
from proctor.evidence.validate import Status
from proctor.report.format_values import legible, plural
from proctor.report.text import render_findings
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.examine import Examination, ExaminedItem

_MAX_SHOWN = 50
_NOUNS = {"attempt": "attempt", "process": "agent server"}
_STYLE = {Status.VALID: "green", Status.PARTIAL: "yellow", Status.INVALID: "bold red"}


def render_examination(found: Examination, *, calling: CommandFormatter) -> RenderableType:
    """Each thing that is not whole with what is wrong with it, then the sum."""
    bad = [each for each in found.examined if each.status is not Status.VALID]
    parts: list[RenderableType] = []
    for each in bad[:_MAX_SHOWN]:
        parts += [_heading(each), Padding(render_findings(each.findings), (0, 0, 0, 4))]
    if len(bad) > _MAX_SHOWN:
        parts.append(Text(f"  … and {len(bad) - _MAX_SHOWN} more; --json gives all", style="dim"))
    codes = dict.fromkeys(finding.code for each in bad for finding in each.findings)
    if codes:
        parts += [Text(), Padding(_what_to_do(list(codes), calling), (0, 0, 0, 2)), Text()]
    how = "strictly" if found.is_strict else "by their seals (--strict checks everything)"
    is_running = bool(bad) and all(each.is_running for each in bad)
    word = Text("running" if is_running else found.status.value, style=_STYLE[found.status])
    return Group(*parts, word.append(f"  {_sum(found)}, checked {how}", style=""))


def _heading(each: ExaminedItem) -> Text:
    run = "" if each.run_id is None or each.kind == "run" else f"  run {each.run_id}"
    heading = Text(f"{'running' if each.is_running else each.status.value:8}", style=_STYLE[each.status])
    return heading.append(f"{each.kind} {legible(each.name)}", style="bold").append(legible(run), style="dim")


def _sum(found: Examination) -> str:
    kinds = Counter(each.kind for each in found.examined)
    counted = [plural(kinds[kind], noun) for kind, noun in _NOUNS.items() if kinds[kind]]
    return " and ".join(counted) or "nothing there"


def _what_to_do(codes: list[str], calling: CommandFormatter) -> Table:
    grid = Table.grid(padding=(0, 2))
    for code in codes:
        if code in CODES:
            grid.add_row(Text(code, style="dim"), Text(f"{CODES[code].means} {calling.spell(CODES[code].todo)}"))
    return grid
