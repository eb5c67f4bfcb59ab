"""`proctor campaign cancel`."""

import os
import signal
from pathlib import Path

from proctor.campaign.lock import is_held_by
from proctor.campaign.stops import DRAIN, STOP
from proctor.contain.identity import ProcessIdentity, pin, send_signal
from proctor.errors import InputError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.owner_lock import owner_of
from proctor.ledger.reader import is_live
from proctor.report.campaign_state import campaigns_by_age
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output
from proctor.surface.cli.resume_campaign import can_resume
from proctor.surface.cli.select_campaign import find_campaign


def cancel(*, id_: str | None, is_now: bool, root: Path | None, as_json: bool) -> int:
    """Stop a running campaign after its current attempts have finished.

    With --now, the current attempts are stopped and sealed as cancelled. Either way the campaign can
    be resumed. ID may be omitted if only one campaign is running. Returns without waiting for the
    campaign to end. Exits 2 if the campaign is not running.
    """
    output = Output(is_json=as_json)
    root_paths = RootPaths(evidence_root(root))
    campaign = _running(root_paths, is_now=is_now) if id_ is None else find_campaign(id_, root=root_paths)
    pid = _signal(campaign, is_now=is_now)
    if as_json:
        output.json({"campaignId": campaign.folder.name, "pid": pid, "isNow": is_now})
        return 0
    what = "stopping its attempts" if is_now else "finishing its current attempts, then stopping"
    output.text(f"{campaign.folder.name}: {what}\n")
    if can_resume(campaign):
        output.text(
            f"Resume it with: {CommandFormatter.of(root).command('campaign', 'resume', campaign.folder.name)}\n"
        )
    return 0


def running_campaigns(root: RootPaths) -> list[CampaignPaths]:
    """Return the campaigns that a process is running, oldest first."""
    return [each for each in campaigns_by_age(root) if is_live(each)]


def owner_of_running(campaign: CampaignPaths) -> ProcessIdentity:
    """Return the process that runs the campaign. Raises InputError if none does, or if that cannot be confirmed."""
    owner = owner_of(campaign.folder) if is_live(campaign) else None
    if owner is None:
        raise InputError("campaign.not-running", f"{campaign.folder.name} is not running")
    if not is_held_by(campaign, owner):
        what = f"the lock of {campaign.folder.name} names process {owner.pid}, which does not hold it"
        raise InputError("campaign.not-running", what, suggestion="Stop the process that holds it (see `lslocks`).")
    return owner


def _running(root: RootPaths, *, is_now: bool) -> CampaignPaths:
    running = running_campaigns(root)
    if not running:
        raise InputError("campaign.not-running", f"no campaign is running in {root.folder}")
    if len(running) > 1:
        now = " --now" if is_now else ""
        commands = [f"proctor campaign cancel {each.folder.name}{now}" for each in reversed(running)]
        what = f"{len(running)} campaigns are running in {root.folder}"
        raise InputError("evidence.ambiguous", what, suggestion="\n".join(commands))
    return running[0]


def _signal(campaign: CampaignPaths, *, is_now: bool) -> int:
    """Signal the process that runs the campaign, and return its pid."""
    owner = owner_of_running(campaign)
    pidfd = pin(owner)
    if pidfd is None:
        raise InputError("campaign.not-running", f"{campaign.folder.name} is not running")
    number = STOP if is_now else DRAIN
    try:
        if not _is_caught(number, pid=owner.pid):
            what = f"{campaign.folder.name} is run from Python by process {owner.pid}, which does not handle the signal"
            raise InputError(
                "campaign.not-running", what, suggestion="Cancel the task that awaits proctor.run in that process."
            )
        send_signal(pidfd, number)
    finally:
        os.close(pidfd)
    return owner.pid


def _is_caught(number: signal.Signals, *, pid: int) -> bool:
    """Return whether the process handles the signal. A process that does not would be killed by it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    [caught] = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


RUNNING = argument(
    "id_", metavar="ID", nargs="?", help="Id, unique prefix or name of the campaign (default: the running one)."
)

COMMANDS = {
    "campaign cancel": Command(
        call=cancel,
        example="proctor campaign cancel --now",
        arguments=(
            RUNNING,
            argument("--now", dest="is_now", action="store_true", help="Stop the current attempts, too."),
            ROOT,
            JSON,
        ),
    ),
}
