"""Whether and how a campaign is gone on with."""

from collections.abc import Collection
from pathlib import Path

from proctor.campaign.freeze import read_given
from proctor.errors import InputError, MachineError
from proctor.evidence.layout import CampaignPaths
from proctor.ids import TrialId
from proctor.ledger.reader import read_origin
from proctor.report.campaign_state import read_trials
from proctor.report.find import root_of
from proctor.spec.load import LoadedSpec, load_spec
from proctor.surface.cli.select_campaign import is_no_canary


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
        return load_spec(spec, overrides=given)
    file = _file(campaign)
    name = campaign.folder.name
    if file is None or _is_gone(file):
        what = f"{name} does not say where its spec lies" if file is None else f"the spec of {name} is gone: {file}"
        raise InputError("campaign.no-spec", what, suggestion=f"proctor campaign resume {name} --spec FILE")
    return load_spec(file, overrides=given)


def _is_gone(file: Path) -> bool:
    """What is denied may be there: whoever reads it tells."""
    try:
        file.stat()
    except ValueError:  # no path can be that
        return True
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def trials_due(resume: CampaignPaths | None, *, only: Collection[TrialId] | None) -> Collection[TrialId] | None:
    """Which trials a run would try: `only` these, or those that are not settled in what it resumes; None is all."""
    if only is not None or resume is None:
        return only
    return frozenset(each.trial.id for each in read_trials(resume, root=root_of(resume)).trials if not each.is_settled)


def _file(campaign: CampaignPaths) -> Path | None:
    """Where its spec was; None where it was built from Python, or its set-up was cut off."""
    origin = read_origin(campaign.ledger) if campaign.ledger.exists() else None
    return Path(origin.file) if origin is not None and origin.file else None
