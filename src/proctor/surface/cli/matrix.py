"""Render the matrix of declared and proven capabilities for a terminal: one column per runtime and transport."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.report.format_values import legible
from proctor.runtime.proof import ProofState
from proctor.surface.matrix import Matrix, MatrixColumn

_LABELS = {
    ProofState.PROVEN: ("proven", "green"),
    ProofState.FAILED: ("FAILED", "bold red"),
    ProofState.STALE: ("stale", "yellow"),
    ProofState.DECLARED: ("declared", "yellow"),
    ProofState.UNTRIED: ("untried", "yellow"),
    ProofState.NOT_DECLARED: ("–", "dim"),
    ProofState.NOT_APPLICABLE: ("n/a", "dim"),
}
_LEGEND = (
    "proven: passed with this program · declared, untried: not tested yet · stale: passed with another program "
    "or Proctor version · –: not declared · n/a: cannot be tested"
)


def render_matrix(found: Matrix) -> RenderableType:
    if not found.columns:
        return Text("No runtime is installed.")
    capabilities = _table("capability", [column.capabilities for column in found.columns])
    cases = _table("every runtime", [column.cases for column in found.columns])
    return Group(_columns(found.columns), Text(), capabilities, Text(), cases, Text(), Text(_LEGEND, style="dim"))


def _columns(columns: Sequence[MatrixColumn]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in ("", "runtime", "version", "sha256", "tested isolations, or next step"):
        table.add_column(head, no_wrap=head != "tested isolations, or next step", overflow="fold")
    for number, column in enumerate(columns, 1):
        name = Text(f"{legible(column.id)} {column.transport}", style="bold")
        table.add_row(str(number), name, column.version or "?", (column.subject or "none")[:12], _next(column))
    return table


def _next(column: MatrixColumn) -> Text:
    if column.problem is not None:
        return Text(legible(column.problem), style="red")
    if column.isolations:
        return Text(", ".join(column.isolations))
    return Text(f"proctor runtimes conformance {legible(column.id)} --transport {column.transport}", style="yellow")


def _table(name: str, columns: Sequence[Mapping[str, ProofState]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in (name, *(str(number) for number in range(1, len(columns) + 1))):
        table.add_column(head, no_wrap=True)
    for row in _rows(columns):
        table.add_row(*row)
    return table


def _rows(columns: Sequence[Mapping[str, ProofState]]) -> Iterator[tuple[Text, ...]]:
    for name in dict.fromkeys(name for column in columns for name in column):
        yield Text(name), *(_label(column.get(name)) for column in columns)


def _label(state: ProofState | None) -> Text:
    return Text() if state is None else Text(*_LABELS[state])
