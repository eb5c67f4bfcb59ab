"""What an examination of evidence found, for a terminal."""

from collections import Counter

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proctor.errors import CODES
from proctor.report.format_values import legible, plural
from proctor.report.text import render_findings
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.examine import Examination, ExaminedItem, ItemStatus

_MAX_SHOWN = 50
_NOUNS = {"attempt": "attempt", "process": "agent process", "run": "run", "campaign": "campaign"}
_COUNTED = ("attempt", "process")
"""The kinds that are named even if nothing is wrong with them."""
_STYLE = {
    ItemStatus.VALID: "green",
    ItemStatus.ABANDONED: "dim",
    ItemStatus.PARTIAL: "yellow",
    ItemStatus.INVALID: "bold red",
}
_WHOLE = (ItemStatus.VALID, ItemStatus.ABANDONED)


def render_examination(found: Examination, *, calling: CommandFormatter) -> RenderableType:
    """Render each thing that is not whole with what is wrong with it, then the sum."""
    bad = [each for each in found.examined if each.status not in _WHOLE]
    parts: list[RenderableType] = []
    for each in bad[:_MAX_SHOWN]:
        parts += [_heading(each), Padding(render_findings(each.findings), (0, 0, 0, 4))]
    if len(bad) > _MAX_SHOWN:
        parts.append(Text(f"  … and {len(bad) - _MAX_SHOWN} more; --json gives all", style="dim"))
    codes = dict.fromkeys(finding.code for each in bad for finding in each.findings)
    if codes:
        parts += [Text(), Padding(_what_to_do(list(codes), calling), (0, 0, 0, 2)), Text()]
    return Group(*parts, _sum(found))


def _heading(each: ExaminedItem) -> Text:
    run = "" if each.run_id is None or each.kind == "run" else f"  run {each.run_id}"
    heading = Text(f"{_word(each):8}", style=_STYLE[each.status])
    return heading.append(f"{each.kind} {legible(each.name)}", style="bold").append(legible(run), style="dim")


def _word(each: ExaminedItem) -> str:
    return "running" if each.is_running else each.status.value


def _sum(found: Examination) -> Text:
    """Return the last line: how many things of each kind are not valid, and how many were checked."""
    how = "checked strictly" if found.is_strict else "checked by their seals (--strict checks everything)"
    kinds = Counter(each.kind for each in found.examined)
    abandoned = sum(each.kind == "attempt" and each.status is ItemStatus.ABANDONED for each in found.examined)
    how += f"; {abandoned:,} abandoned: a later attempt counts" if abandoned else ""
    bad = Counter((_word(each), each.kind) for each in found.examined if each.status not in _WHOLE)
    clauses = []
    for word in (word for word in ("invalid", "partial", "running") if any(word == each for each, _ in bad)):
        of_it = [
            f"{bad[word, kind]:,} of {plural(kinds[kind], noun)}" for kind, noun in _NOUNS.items() if bad[word, kind]
        ]
        clauses.append((word, " and ".join(of_it)))
    others = [kind for kind in _COUNTED if kinds[kind] and not any(kind == each for _, each in bad)]
    counted = " and ".join(plural(kinds[kind], _NOUNS[kind]) for kind in others)
    if not clauses:
        text = f"{counted}, {how}" if counted else "there is nothing to check"
        return Text.assemble((found.status.value, _STYLE[found.status]), f": {text}")
    worst = clauses[0][0]
    rest = f" ({counted} checked, none {worst})" if counted else ""
    text = "; ".join(f"{word}: {of_it}" for word, of_it in clauses).removeprefix(worst)
    return Text.assemble((worst, _STYLE[found.status]), f"{text}{rest}; {how}")


def _what_to_do(codes: list[str], calling: CommandFormatter) -> Table:
    grid = Table.grid(padding=(0, 2))
    for code in codes:
        if code in CODES:
            grid.add_row(Text(code, style="dim"), Text(f"{CODES[code].means} {calling.spell(CODES[code].todo)}"))
    return grid
