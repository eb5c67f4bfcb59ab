"""`proctor campaign run`, `canary` and `resume`."""

from dataclasses import replace
from pathlib import Path

import msgspec

from proctor.campaign.freeze import read_given
from proctor.campaign.ledger import read_origin
from proctor.errors import EvidenceError, InputError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.reader import read_artifact
from proctor.report.place import find_place
from proctor.report.query import campaigns_by_age
from proctor.spec.load import LoadedSpec, load_spec
from proctor.spec.running import SelectSpec
from proctor.surface.cli import run as shortcut
from proctor.surface.cli.command import JSON, PROGRESS, ROOT, Command, argument, evidence_root
from proctor.surface.cli.drive import drive
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
    *, id_: str | None, spec: Path | None, root: Path | None, as_json: bool, is_scratch_kept: bool, rows_to: Path | None
) -> int:
    """Go on with a campaign that was cut off, stopped, or left something untried.

    What has a result stays; what has none is tried again, in a run of its own. The spec and the
    files it names must be what they were when the campaign began.
    """
    folder = evidence_root(root)
    campaign = find_campaign(id_, root=RootPaths(folder))
    loaded = load_again(campaign, spec)
    driven = drive(loaded, root=folder, is_scratch_kept=is_scratch_kept, resume=campaign, rows_to=rows_to)
    return tell(driven, root=root, as_json=as_json, rows_to=rows_to)


def find_campaign(word: str | None, *, root: RootPaths) -> CampaignPaths:
    """The one that is named, or the latest that is no canary."""
    if word is not None:
        place = find_place(word, root=root)
        if isinstance(place, CampaignPaths):
            return place
        raise InputError("evidence.not-found", f"{word} is no campaign")
    for campaign in reversed(campaigns_by_age(root)):
        if not _is_canary(campaign):
            return campaign
    raise InputError("evidence.not-found", f"there is no campaign under {root.folder}")


class _Plan(msgspec.Struct, frozen=True, rename="camel"):
    is_canary: bool = False


class _PlanFile(msgspec.Struct, frozen=True):
    plan: _Plan


def _is_canary(campaign: CampaignPaths) -> bool:
    try:
        return read_artifact(campaign.plan, _PlanFile).plan.is_canary
    except EvidenceError:  # told by whoever goes on with it
        return False


def load_again(campaign: CampaignPaths, spec: Path | None) -> LoadedSpec:
    """The spec of a campaign from where it was, or from where somebody says it is now."""
    given = read_given(campaign)
    if spec is not None:
        return load_spec(spec, given=given)
    origin = read_origin(campaign.ledger) if campaign.ledger.exists() else None
    name = campaign.folder.name
    if origin is None or not Path(origin.file).exists():
        what = f"{name} does not say where its spec lies"
        if origin is not None:
            what = f"the spec of {name} is not there any more: {origin.file}"
        raise InputError("campaign.no-spec", what, suggestion=f"proctor campaign resume {name} --spec FILE")
    return load_spec(Path(origin.file), given=given)


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
        arguments=(ID, AGAIN, KEEP_SCRATCH, PROGRESS, ROOT, JSON),
    ),
}
