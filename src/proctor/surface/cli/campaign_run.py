"""`proctor campaign run`, `canary` and `resume`."""

from dataclasses import replace
from pathlib import Path
from typing import Unpack

import msgspec

from proctor.errors import InputError
from proctor.evidence.layout import RootPaths
from proctor.spec.campaign_options import SelectSpec
from proctor.surface.cli import run as shortcut
from proctor.surface.cli.command import Command, argument, evidence_root
from proctor.surface.cli.resume_campaign import can_resume, load_again
from proctor.surface.cli.run import HOW, SPEC, RunOptions, carry_out
from proctor.surface.cli.select_campaign import find_campaign
from proctor.surface.cli.select_missions import SELECT, load_selected


def canary(*, spec: Path, missions: int, select: SelectSpec, **how: Unpack[RunOptions]) -> int:
    """Try the first missions of a campaign, once in every flow.

    It has evidence and a report of its own: the campaign itself has not begun by it.
    """
    if missions < 1:
        raise InputError("usage", "a canary is of one mission at least")
    folder, loaded = evidence_root(how["root"]), load_selected(spec, select)
    trial = replace(loaded, missions=loaded.missions[:missions], spec=msgspec.structs.replace(loaded.spec, repeats=1))
    return carry_out(trial, folder=folder, is_canary=True, **how)


def resume(*, id_: str | None, spec: Path | None, **how: Unpack[RunOptions]) -> int:
    """Go on with a campaign that was cut off, stopped, or left something untried.

    What has a result stays; what has none is tried again, in a run of its own. The spec and the
    files it names must be what they were when the campaign began. Where what is left may cost money,
    somebody must agree to that, whatever was agreed to before.
    """
    folder = evidence_root(how["root"])
    campaign = find_campaign(id_, root=RootPaths(folder), is_fit=can_resume)
    loaded = load_again(campaign, spec)
    return carry_out(loaded, folder=folder, resume=campaign, why_idle="every trial has a result", **how)


ID = argument(
    "id_",
    metavar="ID",
    nargs="?",
    help="The campaign: its id, a beginning of it or its name; else the latest.",
)
AGAIN = argument("--spec", metavar="FILE", type=Path, help="Where its spec lies now, if it was moved.")

COMMANDS = {
    "campaign run": replace(shortcut.COMMANDS["run"], example="proctor campaign run examples/quickstart.yaml"),
    "campaign canary": Command(
        call=canary,
        example="proctor campaign canary examples/quickstart.yaml --missions 2",
        arguments=(
            SPEC,
            argument("--missions", metavar="N", type=int, default=1, help="How many of its missions; else 1."),
            *SELECT,
            *HOW,
        ),
    ),
    "campaign resume": Command(
        call=resume,
        example="proctor campaign resume quickstart",
        arguments=(ID, AGAIN, *HOW),
    ),
}
