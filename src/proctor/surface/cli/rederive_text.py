"""What a rederivation did, for a terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.attempt.recheck import FileStatus
from proctor.report.text import render_findings
from proctor.surface.cli.blocks import pairs
from proctor.surface.rederive import Rederivation

_WORDS = {
    FileStatus.SAME: ("the same as its frames give", "green"),
    FileStatus.RESTORED: ("was gone; put back, as it was sealed", "green"),
    FileStatus.DIFFERS: ("DIFFERS from what its frames give", "bold red"),
    FileStatus.ABSENT: ("absent", "yellow"),
}


def render_rederived(done: Rederivation) -> RenderableType:
    rows = [(name, Text(*_WORDS[fate])) for name, fate in done.files.items()]
    parts: list[RenderableType] = [Text(done.attempt_id, style="bold"), pairs(rows)]
    if done.findings:
        parts += [Text(), render_findings(done.findings)]
    return Group(*parts)
