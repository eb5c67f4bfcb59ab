"""Resume a campaign: whether it can be, from which spec, and which trials remain."""

from collections.abc import Collection
from pathlib import Path

from proctor.campaign.freeze import read_given
from proctor.config.project import load_project_spec
from proctor.errors import InputError, MachineError
from proctor.evidence.layout import CampaignPaths
from proctor.ids import TrialId
from proctor.ledger.reader import read_origin
from proctor.report.campaign_state import load_state
from proctor.report.find import root_of
from proctor.spec.load import LoadedSpec
from proctor.surface.cli.select_campaign import is_no_canary


def can_resume(campaign: CampaignPaths) -> bool:
    """Return whether `campaign resume` accepts a campaign: it is not a canary, and was run from a spec file."""
    try:
        return is_no_canary(campaign) and _file(campaign) is not None
    except MachineError:  # resuming it reports the error
        return True


def load_again(campaign: CampaignPaths, spec: Path | None) -> LoadedSpec:
    """Load the spec of a campaign again, from `spec` if given, else from its recorded path.

    Raises InputError if there is no such file.
    """
    given = read_given(campaign)
    if spec is not None:
        return load_project_spec(spec, overrides=given)
    file = _file(campaign)
    name = campaign.folder.name
    if file is None or _is_gone(file):
        what = f"{name} has no spec file" if file is None else f"the spec of {name} does not exist: {file}"
        raise InputError("campaign.no-spec", what, suggestion=f"proctor campaign resume {name} --spec FILE")
    return load_project_spec(file, overrides=given)


def _is_gone(file: Path) -> bool:
    """Return whether a file does not exist. If access is denied, reading it reports the error."""
    try:
        file.stat()
    except ValueError:  # not a valid path
        return True
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def trials_due(resume: CampaignPaths | None, *, only: Collection[TrialId] | None) -> Collection[TrialId] | None:
    """Return the trials that a run would run: `only` if given, else the unsettled ones of `resume`; None for all."""
    if only is not None or resume is None:
        return only
    trials = load_state(resume, root=root_of(resume)).trials
    return frozenset(each.id for each in trials if each.id is not None and not each.is_settled)


def _file(campaign: CampaignPaths) -> Path | None:
    """Return the path of its spec; None if it was built in Python or the campaign's setup was interrupted."""
    origin = read_origin(campaign.ledger) if campaign.ledger.exists() else None
    return Path(origin.file) if origin is not None and origin.file else None
