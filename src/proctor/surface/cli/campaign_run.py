"""`proctor campaign run`, `canary` and `resume`."""

from dataclasses import replace
from pathlib import Path
from typing import Unpack

import msgspec

from proctor.errors import InputError
from proctor.evidence.layout import RootPaths
from proctor.spec.campaign_options import SelectSpec
from proctor.surface.cli import run as run_command
from proctor.surface.cli.command import Command, argument, evidence_root
from proctor.surface.cli.resume_campaign import can_resume, load_again
from proctor.surface.cli.run import HOW, SPEC, RunOptions, carry_out
from proctor.surface.cli.select_campaign import find_campaign
from proctor.surface.cli.select_missions import SELECT, load_selected


def canary(*, spec: Path, missions: int, select: SelectSpec, **options: Unpack[RunOptions]) -> int:
    """Run the first missions of a campaign, once in every flow, as a separate sample.

    The canary is a separate campaign with its own evidence and report; it does not count as a part
    of the full campaign. Exit codes are those of `proctor run`.
    """
    if missions < 1:
        raise InputError("usage", f"--missions {missions}: a canary needs at least 1 mission")
    folder, loaded = evidence_root(options["root"]), load_selected(spec, select)
    sample = replace(loaded, missions=loaded.missions[:missions], spec=msgspec.structs.replace(loaded.spec, repeats=1))
    return carry_out(sample, folder=folder, is_canary=True, **options)


def resume(*, id_: str | None, spec: Path | None, **options: Unpack[RunOptions]) -> int:
    """Resume a campaign that was interrupted or is incomplete.

    Trials that have a result keep it; the others are run in a new run. The spec and the files it
    names must not have changed since the campaign was created. If the remaining trials may cost
    money, the cost must be confirmed again, at the terminal or with --yes. Exit codes are those of
    `proctor run`.
    """
    folder = evidence_root(options["root"])
    campaign = find_campaign(id_, root=RootPaths(folder), is_fit=can_resume)
    loaded = load_again(campaign, spec)
    return carry_out(loaded, folder=folder, resume=campaign, why_idle="every trial has a result", **options)


ID = argument(
    "id_",
    metavar="ID",
    nargs="?",
    help="Id, unique prefix or name of the campaign (default: the latest).",
)
AGAIN = argument("--spec", metavar="FILE", type=Path, help="New path of the spec, if it was moved.")

COMMANDS = {
    "campaign run": replace(run_command.COMMANDS["run"], example="proctor campaign run examples/quickstart.yaml"),
    "campaign canary": Command(
        call=canary,
        example="proctor campaign canary examples/quickstart.yaml --missions 2",
        arguments=(
            SPEC,
            argument("--missions", metavar="N", type=int, default=1, help="Number of missions to run (default: 1)."),
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
