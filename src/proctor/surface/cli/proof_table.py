"""What was claimed and what was shown, side by side, for a terminal."""

import re
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.report.words import legible
from proctor.surface.cli.blocks import pairs
from proctor.surface.prove import Proof, Proven


def render_proofs(found: Sequence[Proven]) -> RenderableType:
    parts: list[RenderableType] = []
    for each in found:
        title = Text(legible(each.id), style="bold").append(f"   {each.version or ''}", style="dim")
        parts += [title, pairs(_rows(each)), Text()]
    return Group(*parts[:-1]) if parts else Text("No runtime is installed.")


def _rows(each: Proven) -> list[tuple[str, RenderableType]]:
    rows: list[tuple[str, RenderableType]] = []
    if each.program is not None:
        rows.append(("program", Text(f"{legible(each.program.path)}  sha256 {each.program.sha256[:12]}")))
    if each.problem is not None:
        rows.append(("problem", Text(legible(each.problem.what), style="red")))
        rows.append(("to do", Text(each.problem.todo)))
        rows.append(("code", Text(each.problem.code)))
    return rows + [(_words(proof.name), _told(proof)) for proof in each.proofs]


def _words(name: str) -> str:
    """
    >>> _words("threadStart")
    'thread start'
    """
    return re.sub(r"([A-Z])", r" \1", name).lower()


def _told(proof: Proof) -> Text:
    why = "" if proof.what is None else f": {legible(proof.what)}"
    if not proof.is_claimed:
        return Text("not claimed", style="dim")
    if proof.is_proven is None:
        return Text(f"claimed, not tried{why}", style="yellow")
    return Text("proven", style="green") if proof.is_proven else Text(f"claimed, NOT SHOWN{why}", style="bold red")
