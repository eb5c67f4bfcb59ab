"""`proctor campaign run`, `canary` and `resume`."""

from dataclasses import replace
from pathlib import Path

import msgspec

from proctor.errors import InputError
from proctor.evidence.layout import RootPaths
from proctor.spec.running import SelectSpec
from proctor.surface.cli import run as shortcut
from proctor.surface.cli.command import JSON, PROGRESS, ROOT, Command, argument, evidence_root
from proctor.surface.cli.drive import drive
from proctor.surface.cli.meant import find_campaign
from proctor.surface.cli.resuming import can_resume, load_again
from proctor.surface.cli.run import KEEP_SCRATCH, SPEC, YES, tell
from proctor.surface.cli.selecting import SELECT, load_selected


def canary(
    *,
    spec: Path,
    missions: int,
    is_agreed: bool,
    root: Path | None,
    as_json: bool,
    is_scratch_kept: bool,
    rows_to: Path | None,
    select: SelectSpec,
) -> int:
    """Try the first missions of a campaign, once in every flow.

    It has evidence and a report of its own: the campaign itself has not begun by it.
    """
    if missions < 1:
        raise InputError("usage", "a canary is of one mission at least")
    folder, loaded = evidence_root(root), load_selected(spec, select)
    trial = replace(loaded, missions=loaded.missions[:missions], spec=msgspec.structs.replace(loaded.spec, repeats=1))
    driven = drive(
        trial, root=folder, is_scratch_kept=is_scratch_kept, is_canary=True, is_agreed=is_agreed, rows_to=rows_to
    )
    return tell(driven, root=root, as_json=as_json, rows_to=rows_to)


def resume(
    *,
    id_: str | None,
    spec: Path | None,
    is_agreed: bool,
    root: Path | None,
    as_json: bool,
    is_scratch_kept: bool,
    rows_to: Path | None,
) -> int:
    """Go on with a campaign that was cut off, stopped, or left something untried.

    What has a result stays; what has none is tried again, in a run of its own. The spec and the
    files it names must be what they were when the campaign began. Where what is left may cost money,
    somebody must agree to that, whatever was agreed to before.
    """
    folder = evidence_root(root)
    campaign = find_campaign(id_, root=RootPaths(folder), is_fit=can_resume)
    loaded = load_again(campaign, spec)
    driven = drive(
        loaded, root=folder, is_agreed=is_agreed, is_scratch_kept=is_scratch_kept, resume=campaign, rows_to=rows_to
    )
    return tell(driven, root=root, as_json=as_json, rows_to=rows_to, why_idle="every cell has a result")


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
            YES,
            KEEP_SCRATCH,
            PROGRESS,
            ROOT,
            JSON,
        ),
    ),
    "campaign resume": Command(
        call=resume,
        example="proctor campaign resume quickstart",
        arguments=(ID, AGAIN, YES, KEEP_SCRATCH, PROGRESS, ROOT, JSON),
    ),
}
