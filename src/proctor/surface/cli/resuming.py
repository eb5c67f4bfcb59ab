"""Whether and how a campaign is gone on with."""

from collections.abc import Collection
from pathlib import Path

from proctor.campaign.freeze import read_given
from proctor.campaign.ledger import read_origin
from proctor.errors import InputError, MachineError
from proctor.evidence.layout import CampaignPaths
from proctor.ids import CellId
from proctor.report.place import root_of
from proctor.report.standing import read_cells
from proctor.spec.load import LoadedSpec, load_spec
from proctor.surface.cli.meant import is_no_canary


def can_resume(campaign: CampaignPaths) -> bool:
    """Whether it is one that `campaign resume` takes up: no canary, and of a spec that lies somewhere."""
    try:
        return is_no_canary(campaign) and _file(campaign) is not None
    except MachineError:  # told by whoever goes on with it
        return True


def load_again(campaign: CampaignPaths, spec: Path | None) -> LoadedSpec:
    """The spec of a campaign from where it was, or from where somebody says it is now."""
    given = read_given(campaign)
    if spec is not None:
        return load_spec(spec, given=given)
    file = _file(campaign)
    name = campaign.folder.name
    if file is None or _is_gone(file):
        what = f"{name} does not say where its spec lies" if file is None else f"the spec of {name} is gone: {file}"
        raise InputError("campaign.no-spec", what, suggestion=f"proctor campaign resume {name} --spec FILE")
    return load_spec(file, given=given)


def _is_gone(file: Path) -> bool:
    """What is denied may be there: whoever reads it tells."""
    try:
        file.stat()
    except ValueError:  # no path can be that
        return True
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def cells_due(resume: CampaignPaths | None, *, only: Collection[CellId] | None) -> Collection[CellId] | None:
    """Which cells a run would try: `only` these, or those that are not settled in what it resumes; None is all."""
    if only is not None or resume is None:
        return only
    return frozenset(each.cell.id for each in read_cells(resume, root=root_of(resume)).cells if not each.is_settled)


def _file(campaign: CampaignPaths) -> Path | None:
    """Where its spec lay; None where it was built on the spot, or an older Proctor did not say."""
    origin = read_origin(campaign.ledger) if campaign.ledger.exists() else None
    return Path(origin.file) if origin is not None and origin.file else None
