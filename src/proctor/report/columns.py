"""A table that fits its terminal: columns are dropped if it is narrow, except the first."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_GAP = 2
MIN_NAME_WIDTH = 44
"""On a terminal of 80 columns it leaves room for the three most important columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    """A table whose first column is a name. The other columns are the keys of what `add` is given."""

    name: str
    """Heading of the first column."""
    drop_order: Sequence[str]
    """The columns that may be dropped, the least important first."""
    numbers: Collection[str]
    """The columns that are aligned to the right."""
    min_name_width: int | None = None
    """Names longer than this are folded before a column is dropped. None folds only names that fit on no line."""
    rows: list[dict[str, Text]] = field(default_factory=list)

    def add(self, label: Text, facts: dict[str, Text]) -> None:
        """Add a row: its name, and its values by column."""
        self.rows.append({self.name: label, **facts})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = list(self.rows[0]) if self.rows else [self.name]
        widths = {each: max([len(each), *(row[each].cell_len for row in self.rows)]) for each in columns}
        name_width = min(widths[self.name], self.min_name_width or options.max_width)
        for each in self.drop_order:
            if name_width + sum(widths[other] + _GAP for other in columns[1:]) <= options.max_width:
                break
            if each in columns:
                columns.remove(each)
        yield self._table(columns)

    def _table(self, columns: Sequence[str]) -> Table:
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
        for each in columns:
            # Only the name is folded: it can be of any length.
            justify: Literal["left", "right"] = "right" if each in self.numbers else "left"
            table.add_column(each, justify=justify, no_wrap=each != self.name, overflow="fold")
        for row in self.rows:
            table.add_row(*(row[each] for each in columns))
        return table
