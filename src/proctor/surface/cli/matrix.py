"""The matrix of claims and proofs, for a terminal: a column a lane, and what each lane is."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.report.words import legible
from proctor.surface.matrix import Lane, Matrix, ProofState

_TOLD = {
    ProofState.PROVEN: ("proven", "green"),
    ProofState.FAILED: ("FAILED", "bold red"),
    ProofState.STALE: ("stale", "yellow"),
    ProofState.CLAIMED: ("claimed", "yellow"),
    ProofState.UNTRIED: ("untried", "yellow"),
    ProofState.NOT_CLAIMED: ("–", "dim"),
    ProofState.NOT_APPLICABLE: ("n/a", "dim"),
}
_LEGEND = (
    "proven: shown by this very program · claimed, untried: not shown yet · stale: shown by another program "
    "or Proctor · –: not claimed · n/a: cannot be tried"
)


def render_matrix(found: Matrix) -> RenderableType:
    if not found.lanes:
        return Text("No runtime is installed.")
    claims = _table("claim", [lane.claims for lane in found.lanes])
    cases = _table("every runtime", [lane.cases for lane in found.lanes])
    return Group(_lanes(found.lanes), Text(), claims, Text(), cases, Text(), Text(_LEGEND, style="dim"))


def _lanes(lanes: Sequence[Lane]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in ("", "runtime", "version", "sha256", "tried, or what to do"):
        table.add_column(head, no_wrap=head != "tried, or what to do", overflow="fold")
    for number, lane in enumerate(lanes, 1):
        name = Text(f"{legible(lane.id)} {lane.transport}", style="bold")
        table.add_row(str(number), name, lane.version or "?", (lane.subject or "none")[:12], _next(lane))
    return table


def _next(lane: Lane) -> Text:
    if lane.problem is not None:
        return Text(legible(lane.problem), style="red")
    if lane.isolations:
        return Text(", ".join(lane.isolations))
    return Text(f"proctor runtimes conformance {legible(lane.id)} --transport {lane.transport}", style="yellow")


def _table(name: str, columns: Sequence[Mapping[str, ProofState]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in (name, *(str(number) for number in range(1, len(columns) + 1))):
        table.add_column(head, no_wrap=True)
    for row in _rows(columns):
        table.add_row(*row)
    return table


def _rows(columns: Sequence[Mapping[str, ProofState]]) -> Iterator[tuple[Text, ...]]:
    for name in dict.fromkeys(name for column in columns for name in column):
        yield Text(name), *(_cell(column.get(name)) for column in columns)


def _cell(standing: ProofState | None) -> Text:
    return Text() if standing is None else Text(*_TOLD[standing])
