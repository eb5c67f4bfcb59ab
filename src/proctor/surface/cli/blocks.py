"""What commands say to people beside the reports: errors, and names with what belongs to them."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proctor.errors import ProctorError
from proctor.report.words import legible


def error_block(error: ProctorError) -> RenderableType:
    """What, where, what might help, what to do, and the code to look it up by."""
    title = Text("error  ", style="bold red").append(legible(error.what), style="bold")
    told = [
        ("where", error.where),
        ("try", error.suggestion),
        ("to do", error.meaning.todo),
        ("code", error.code),
    ]
    return Group(title, pairs((name, Text(legible(value))) for name, value in told if value))


def pairs(rows: Iterable[tuple[str, RenderableType]]) -> RenderableType:
    """Names and what belongs to them, one below the other."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, value)
    return Padding(grid, (0, 0, 0, 2))
