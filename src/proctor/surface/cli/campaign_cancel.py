"""`proctor campaign cancel`."""

import os
import signal
from pathlib import Path

from proctor.campaign.lock import is_held_by, owner_of
from proctor.campaign.stops import DRAIN, STOP
from proctor.contain.identity import pin, send_signal
from proctor.errors import InputError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ledger.reader import is_live
from proctor.report.query import campaigns_by_age
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output
from proctor.surface.cli.resume_campaign import can_resume
from proctor.surface.cli.select_campaign import find_campaign


def cancel(*, id_: str | None, is_now: bool, root: Path | None, as_json: bool) -> int:
    """Have a running campaign end: what runs finishes, nothing new begins.

    With --now what runs is stopped, and sealed as cancelled. A campaign can be resumed either
    way. Without ID it is the one that runs; where several do, say which.
    """
    output = Output(is_json=as_json)
    root_paths = RootPaths(evidence_root(root))
    campaign = _running(root_paths, is_now=is_now) if id_ is None else find_campaign(id_, root=root_paths)
    pid = _signal(campaign, is_now=is_now)
    if as_json:
        output.json({"campaignId": campaign.folder.name, "pid": pid, "isNow": is_now})
        return 0
    what = "stops what runs" if is_now else "finishes what runs, and begins nothing new"
    output.text(f"{campaign.folder.name} {what}.\n")
    if can_resume(campaign):
        output.text(
            f"Go on with it by: {CommandFormatter.of(root).command('campaign', 'resume', campaign.folder.name)}\n"
        )
    return 0


def _running(root: RootPaths, *, is_now: bool) -> CampaignPaths:
    running = [each for each in campaigns_by_age(root) if is_live(each)]
    if not running:
        raise InputError("campaign.not-running", f"no campaign runs under {root.folder}")
    if len(running) > 1:
        now = " --now" if is_now else ""
        tries = [f"proctor campaign cancel {each.folder.name}{now}" for each in reversed(running)]
        what = f"{len(running)} campaigns run under {root.folder}"
        raise InputError("evidence.ambiguous", what, suggestion="\n".join(tries))
    return running[0]


def _signal(campaign: CampaignPaths, *, is_now: bool) -> int:
    """Whose process it was."""
    owner = owner_of(campaign) if is_live(campaign) else None
    pidfd = None if owner is None else pin(owner)
    if owner is None or pidfd is None:
        raise InputError("campaign.not-running", f"nobody runs {campaign.folder.name}")
    number = STOP if is_now else DRAIN
    try:
        if not is_held_by(campaign, owner):
            what = f"the lock of {campaign.folder.name} names process {owner.pid}, which does not hold it"
            raise InputError("campaign.not-running", what, suggestion="Stop whoever holds it, as `lslocks` tells.")
        if not _is_caught(number, pid=owner.pid):
            what = f"{campaign.folder.name} is run from Python, by process {owner.pid}, which only its owner can stop"
            raise InputError("campaign.not-running", what, suggestion="Cancel the task that awaits proctor.run there.")
        send_signal(pidfd, number)
    finally:
        os.close(pidfd)
    return owner.pid


def _is_caught(number: signal.Signals, *, pid: int) -> bool:
    """Whoever does not catch it would die of it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    [caught] = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


RUNNING = argument(
    "id_", metavar="ID", nargs="?", help="The campaign: its id, a beginning of it or its name; else the one that runs."
)

COMMANDS = {
    "campaign cancel": Command(
        call=cancel,
        example="proctor campaign cancel --now",
        arguments=(
            RUNNING,
            argument("--now", dest="is_now", action="store_true", help="Do not wait for what runs."),
            ROOT,
            JSON,
        ),
    ),
}
