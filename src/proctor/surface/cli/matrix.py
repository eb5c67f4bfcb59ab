"""The matrix of claims and proofs, for a terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.report.words import legible
from proctor.surface.cli.blocks import pairs
from proctor.surface.matrix import Lane, Matrix, Standing

_STYLE = {
    Standing.PROVEN: "green",
    Standing.FAILED: "bold red",
    Standing.STALE: "yellow",
    Standing.CLAIMED: "yellow",
    Standing.UNTRIED: "yellow",
    Standing.NOT_CLAIMED: "dim",
    Standing.NOT_APPLICABLE: "dim",
}


def render_matrix(found: Matrix) -> RenderableType:
    parts: list[RenderableType] = []
    for lane in found.lanes:
        title = Text(legible(lane.id), style="bold").append(f"   {lane.transport}  {lane.version or ''}", style="dim")
        parts += [title, pairs(_rows(lane)), Text()]
    return Group(*parts[:-1]) if parts else Text("No runtime is installed.")


def _rows(lane: Lane) -> list[tuple[str, RenderableType]]:
    rows: list[tuple[str, RenderableType]] = []
    if lane.subject is not None:
        rows.append(("sha256", Text(lane.subject)))
    if lane.problem is not None:
        rows.append(("problem", Text(legible(lane.problem), style="red")))
    rows.append(("tried", Text(", ".join(lane.isolations) or "never, on this program")))
    by_name = [*lane.claims.items(), *lane.cases.items()]
    return rows + [(name, Text(standing, style=_STYLE[standing])) for name, standing in by_name]
