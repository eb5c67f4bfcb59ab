"""Names and what is said of each: side by side where a line holds both, else what is said below the names."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_GAP = 2
# What is said is broken into lines, but not into so many that nobody reads them.
_LEAST_SAID = 48


@dataclass(frozen=True, slots=True)
class Notes:
    """Rows of a name, and of what is said of it."""

    rows: Sequence[tuple[Text, Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names, said = (max((each.cell_len for each in column), default=0) for column in zip(*self.rows, strict=True))
        if names + _GAP + min(said, _LEAST_SAID) > options.max_width:
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
