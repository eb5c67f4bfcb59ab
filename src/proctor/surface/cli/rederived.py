"""What a rederivation did, for a terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.attempt.recheck import Fate
from proctor.report.text import render_problems
from proctor.surface.cli.blocks import pairs
from proctor.surface.rederive import Rederivation

_WORDS = {
    Fate.SAME: ("the same as its frames give", "green"),
    Fate.RESTORED: ("was gone; put back, as it was sealed", "green"),
    Fate.DIFFERS: ("DIFFERS from what its frames give", "bold red"),
    Fate.ABSENT: ("absent", "yellow"),
}


def render_rederived(done: Rederivation) -> RenderableType:
    rows = [(name, Text(*_WORDS[fate])) for name, fate in done.files.items()]
    parts: list[RenderableType] = [Text(done.attempt_id, style="bold"), pairs(rows)]
    if done.problems:
        parts += [Text(), render_problems(done.problems)]
    return Group(*parts)
