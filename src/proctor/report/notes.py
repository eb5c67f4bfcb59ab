"""Names with a note for each: side by side if the terminal is wide enough, else the notes below the names."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_GAP = 2
# A narrower column would break a note into too many lines to be readable.
_MIN_NOTE_WIDTH = 48


@dataclass(frozen=True, slots=True)
class Notes:
    """Rows of a name and a note. Consecutive rows may have the same name."""

    rows: Sequence[tuple[Text, Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        name_width, note_width = (
            max((each.cell_len for each in column), default=0) for column in zip(*self.rows, strict=True)
        )
        if name_width + _GAP + min(note_width, _MIN_NOTE_WIDTH) > options.max_width:
            for name, rows in groupby(self.rows, key=lambda row: row[0]):
                yield name
                yield from (Padding(each, (0, 0, 0, _GAP)) for _, each in rows)
            return
        grid = Table.grid(padding=(0, _GAP))
        grid.add_column(no_wrap=True)
        grid.add_column()
        for row in self.rows:
            grid.add_row(*row)
        yield grid
