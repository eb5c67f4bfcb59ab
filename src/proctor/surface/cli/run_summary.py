"""The last words of a run: where everything is, and what to look at first."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.errors import Exit
from proctor.report.format_values import USED_UP, legible
from proctor.report.row import AttemptRow, Report
from proctor.report.score import is_infra, standing_of
from proctor.report.trials import speakers
from proctor.report.verdict import judge
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.drive import FinishedRun
from proctor.surface.cli.resume_campaign import can_resume


def closing(driven: FinishedRun, *, calling: CommandFormatter) -> RenderableType:
    """Where everything is, and what to look at first. In lines of any length, so that they can be copied."""
    report, campaign = driven.report, driven.campaign
    runs = campaign.folder.parent.parent / "runs"
    rows = [("evidence", str(runs / run)) for run in report.run_ids]
    rows.append(("report", str(campaign.results)))
    if driven.scratch is not None:
        rows.append(("scratch", f"{driven.scratch} (yours to remove)"))
    if not driven.is_canary:
        rows += _going_on(driven, calling)
    if (row := _telling(report)) is not None:
        rows.append(("next", calling.command("attempt", "explain", row.ref)))
    rows.append(("" if row else "next", calling.command(*_look(driven), campaign.folder.name)))
    return Group(Text(), *(Text.assemble((f"  {name:10}", "dim"), legible(value)) for name, value in rows))


def _look(driven: FinishedRun) -> tuple[str, ...]:
    """What says whether all that counts holds: what was cut off, be it tried again since, is never whole."""
    report = driven.report
    is_cut = any(row.state == "partial" for row in report.attempts)
    can_be_shown = not driven.is_canary and not report.missing_trials and any(row.verified for row in report.attempts)
    return ("campaign", "publish-check") if is_cut and can_be_shown else ("validate", "--strict")


def _going_on(driven: FinishedRun, calling: CommandFormatter) -> Iterator[tuple[str, str]]:
    """What can still come of trials. A canary is not gone on with."""
    campaign = driven.campaign.folder.name
    if driven.how in USED_UP:
        yield "to do", USED_UP[driven.how]
    elif driven.how != "done" and can_resume(driven.campaign):
        yield "go on", calling.command("campaign", "resume", campaign)
    elif driven.how == "done" and any(map(_is_infra, speakers(driven.report.attempts))):
        yield "try again", calling.command("retry", "--only", "infra", campaign)


def _is_infra(row: AttemptRow) -> bool:
    return row.state != "running" and is_infra(standing_of(row.outcome, row.code, row.verified, row.is_expected))


def _telling(report: Report) -> AttemptRow | None:
    """The attempt that somebody would want explained first."""
    counted = speakers(report.attempts)
    rows = [*(row for row in counted if judge(row) is not Exit.OK)]
    rows += [row for row in counted if row.verified is False]
    return next(iter((*rows, *counted)), None)
