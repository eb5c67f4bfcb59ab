"""What a run prints below its results: where the evidence is, and what to do next."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proctor.evidence.layout import AttemptPaths
from proctor.report.sections import next_steps
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.drive import FinishedRun

_MAX_DIFFS: Final = 4


def run_footer(driven: FinishedRun, *, formatter: CommandFormatter) -> Iterator[tuple[str, str]]:
    """Yield names and values. Values have any length, so that they can be copied."""
    report, campaign = driven.report, driven.campaign
    runs = campaign.folder.parent.parent / "runs"
    yield from (("evidence", str(runs / run_id)) for run_id in report.run_ids)
    yield "report", str(campaign.results)
    diffs = [AttemptPaths(Path(row.dir)).workspace_diff for row in report.counted_attempts]
    if len(diffs) <= _MAX_DIFFS:
        made = [diff for diff in diffs if diff.is_file() and diff.stat().st_size]
        yield from (("" if at else "diff", str(diff)) for at, diff in enumerate(made))
    if driven.scratch is not None:
        yield "scratch", f"{driven.scratch} (yours to remove)"
    for at, step in enumerate(next_steps(report)):
        yield "" if at else "next", formatter.spell(step)
