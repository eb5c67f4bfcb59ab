"""What commands say to people beside the reports: errors, and names with what belongs to them."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proctor.errors import ProctorError
from proctor.report.format_values import legible
from proctor.surface.cli.command_formatter import CommandFormatter

_TOLD_BETTER = ("usage", "run.cancelled")
"""How a command is to be called, and whether it can be gone on with, a suggestion knows better than the code does."""


def error_block(error: ProctorError, calling: CommandFormatter) -> RenderableType:
    """What, where, what might help, what to do, and the code to look it up by. In lines of any length."""
    title = Text("error  ", style="bold red").append(legible(error.what), style="bold")
    suggestion = calling.spell(error.suggestion or "")
    told = [
        ("where", error.where or ""),
        *(("" if at else "try", line) for at, line in enumerate(suggestion.splitlines())),
        ("to do", "" if suggestion and error.code in _TOLD_BETTER else calling.spell(error.meaning.todo)),
        ("code", error.code),
    ]
    lines = [Text.assemble((f"  {name:7}", "dim"), legible(value)) for name, value in told if value]
    return Group(title, *lines)


@dataclass(frozen=True, slots=True)
class HangingRows:
    """Names and what belongs to them, to be printed unwrapped: no word is ever broken, however long it is."""

    rows: Sequence[tuple[str, str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = 2 + max(len(name) for name, _ in self.rows) + 2
        for name, said in self.rows:
            width = max(options.max_width - wide, 20)
            lines = textwrap.wrap(legible(said), width, break_long_words=False, break_on_hyphens=False)
            for at, line in enumerate(lines):
                yield Text.assemble(
                    ("" if at else f"  {name}", "dim"), " " * (wide if at else wide - 2 - len(name)), line
                )


def pairs(rows: Iterable[tuple[str, RenderableType]]) -> RenderableType:
    """Names and what belongs to them, one below the other."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, value)
    return Padding(grid, (0, 0, 0, 2))
