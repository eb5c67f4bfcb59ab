"""`proctor campaign status` and `proctor campaign list`."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.clock import SYSTEM_CLOCK
from proctor.errors import EvidenceError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.reader import Finding
from proctor.report.campaign_state import campaigns_by_age
from proctor.report.find import first_command
from proctor.report.format_values import legible
from proctor.surface.campaign_status import CampaignStatus, progress_line, status_of
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output, console_on
from proctor.surface.cli.select_campaign import find_campaign

if TYPE_CHECKING:
    from rich.console import RenderableType

# What renders is imported where it is used: a status as JSON needs none of it.

_REFRESH_S = 1.0


def status(*, campaign: str | None, is_watched: bool, root: Path | None, as_json: bool) -> int:
    """Show the status of a campaign, during a run or after it.

    CAMPAIGN is an id, a name or a folder; the default is the latest campaign that is not a canary.
    --watch updates the status every second until the run ends; without a terminal it prints one line
    for each change, and with --json one line for each update.
    """
    output = Output(is_json=as_json)
    paths = find_campaign(campaign, root=RootPaths(evidence_root(root)))
    calling = CommandFormatter.of(root)
    try:
        return _show_status(paths, calling, output, is_watched=is_watched)
    except KeyboardInterrupt:
        if not is_watched:
            raise
        return 0  # only the watching ends; the campaign continues


def _show_status(paths: CampaignPaths, calling: CommandFormatter, output: Output, *, is_watched: bool) -> int:
    if is_watched and output.is_json:
        import msgspec

        for standing in _while_live(paths):
            output.text(msgspec.json.encode(standing).decode() + "\n")
        return 0
    if is_watched and sys.stdout.isatty():
        _watch(paths, calling)
        return 0
    standing = _print_changes(paths, output) if is_watched else status_of(paths)
    if output.is_json:
        output.json(standing)
    else:
        output.show(_rendered(standing, calling), is_wrapped=False)
    return 0


def _print_changes(paths: CampaignPaths, output: Output) -> CampaignStatus:
    """Print one line for each change during the run, and return the status after it."""
    printed = ""
    for standing in _while_live(paths):
        if standing.is_live and (line := progress_line(standing)) != printed:
            output.text(f"{line}\n")
            printed = line
    return standing


def _rendered(standing: CampaignStatus, calling: CommandFormatter) -> "RenderableType":
    from proctor.surface.cli.status_text import render_standing

    return render_standing(standing, now_ms=SYSTEM_CLOCK.wall_ms(), calling=calling)


def _while_live(paths: CampaignPaths) -> Iterator[CampaignStatus]:
    """Yield the status every second during the run, and once after it."""
    while (standing := status_of(paths)).is_live:
        yield standing
        time.sleep(_REFRESH_S)
    yield standing


def _watch(paths: CampaignPaths, calling: CommandFormatter) -> None:
    from rich.live import Live

    with Live(console=console_on(sys.stdout), auto_refresh=False, transient=False) as screen:
        for standing in _while_live(paths):
            screen.update(_rendered(standing, calling), refresh=True)


def list_campaigns(*, root: Path | None, as_json: bool) -> int:
    """List the campaigns under the evidence root, the latest last."""
    output = Output(is_json=as_json)
    folder = evidence_root(root)
    found: list[CampaignStatus] = []
    findings: list[Finding] = []
    for campaign in campaigns_by_age(RootPaths(folder)):
        try:
            found.append(status_of(campaign))
        except EvidenceError as error:
            findings.append(Finding.of(error))
    if as_json:
        output.json({"campaigns": found, **({"findings": findings} if findings else {})})
    elif not found and not findings:
        first = first_command()
        output.text(f"No campaigns in {legible(str(folder))}.\n")
        if first is not None:
            output.text(f"To start one: {CommandFormatter.of(root).spell(first)}\n")
    else:
        from proctor.surface.cli.status_text import render_standings

        output.show(render_standings(found, findings, now_ms=SYSTEM_CLOCK.wall_ms()))
    return 0


CAMPAIGN_HELP = "Id of the campaign or its beginning, its name (meaning the latest), or its folder."

COMMANDS = {
    "campaign status": Command(
        call=status,
        example="proctor campaign status --watch",
        arguments=(
            argument("campaign", metavar="CAMPAIGN", nargs="?", help=CAMPAIGN_HELP),
            argument("--watch", dest="is_watched", action="store_true", help="Update the status until the run ends."),
            ROOT,
            JSON,
        ),
    ),
    "campaign list": Command(call=list_campaigns, example="proctor campaign list --json", arguments=(ROOT, JSON)),
}
