"""A table that fits its terminal: where it is narrow, columns give way, but never the name."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_GAP = 2
LEAST_NAME = 44
"""At 80 columns it leaves room for the three that matter most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    """The first column is the name; the others have the names that `add` takes.

    Of those that give way the first to go stands first. A name that is longer than `least_name` is rather folded than
    to cost another column; without it names are only folded where no line could hold them.
    """

    name: str
    gives_way: Sequence[str]
    numbers: Collection[str]
    least_name: int | None = None
    rows: list[dict[str, Text]] = field(default_factory=list)

    def add(self, label: Text, facts: dict[str, Text]) -> None:
        self.rows.append({self.name: label, **facts})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = list(self.rows[0]) if self.rows else [self.name]
        widths = {each: max([len(each), *(row[each].cell_len for row in self.rows)]) for each in columns}
        least = min(widths[self.name], self.least_name or options.max_width)
        for each in self.gives_way:
            if least + sum(widths[other] + _GAP for other in columns[1:]) <= options.max_width:
                break
            if each in columns:
                columns.remove(each)
        yield self._table(columns)

    def _table(self, columns: Sequence[str]) -> Table:
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
        for each in columns:
            # The name may be of any length; it alone is folded.
            justify: Literal["left", "right"] = "right" if each in self.numbers else "left"
            table.add_column(each, justify=justify, no_wrap=each != self.name, overflow="fold")
        for row in self.rows:
            table.add_row(*(row[each] for each in columns))
        return table
