"""Text blocks for a terminal: errors, and rows of a name and a value."""

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


def error_block(error: ProctorError, formatter: CommandFormatter) -> RenderableType:
    """Render an error: what, where, one advice and code. Lines are not wrapped.

    The advice of the code is general, so it is left out if the error has a suggestion.
    """
    title = Text("error  ", style="bold red").append(legible(error.what), style="bold")
    advice = formatter.spell(error.suggestion or error.meaning.todo)
    rows = [
        ("where", error.where or ""),
        *(("" if at else "to do", line) for at, line in enumerate(advice.splitlines())),
        ("code", error.code),
    ]
    lines = [Text.assemble((f"  {name:7}", "dim"), legible(value)) for name, value in rows if value]
    return Group(title, *lines)


@dataclass(frozen=True, slots=True)
class HangingRows:
    """Rows of a name and a text, wrapped between words only: a long path is never broken. Print it unwrapped.

    Of a `Text`, the style is used for the whole row.
    """

    rows: Sequence[tuple[str, str | Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = 2 + max(len(name) for name, _ in self.rows) + 2
        for name, text in self.rows:
            width = max(options.max_width - wide, 20)
            plain, style = (text.plain, text.style) if isinstance(text, Text) else (text, "")
            lines = textwrap.wrap(legible(plain), width, break_long_words=False, break_on_hyphens=False)
            for at, line in enumerate(lines):
                yield Text.assemble(
                    ("" if at else f"  {name}", "dim"), " " * (wide if at else wide - 2 - len(name)), (line, style)
                )


def pairs(rows: Iterable[tuple[str, RenderableType]]) -> RenderableType:
    """Render rows of a name and a value as two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, value)
    return Padding(grid, (0, 0, 0, 2))
