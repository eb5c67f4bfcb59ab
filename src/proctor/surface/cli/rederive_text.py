"""Render the result of `attempt rederive` for a terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.attempt.recheck import FileStatus
from proctor.report.text import render_findings
from proctor.surface.cli.blocks import pairs
from proctor.surface.rederive import Rederivation

_WORDS = {
    FileStatus.SAME: ("agrees with the frames", "green"),
    FileStatus.RESTORED: ("was missing; restored as sealed", "green"),
    FileStatus.DIFFERS: ("DIFFERS from the frames", "bold red"),
    FileStatus.ABSENT: ("missing", "yellow"),
}


def render_rederived(done: Rederivation) -> RenderableType:
    rows = [(name, Text(*_WORDS[status])) for name, status in done.files.items()]
    parts: list[RenderableType] = [Text(done.attempt_id, style="bold"), pairs(rows)]
    if done.findings:
        parts += [Text(), render_findings(done.findings)]
    return Group(*parts)
