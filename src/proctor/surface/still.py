"""Holding evidence still while it is signed or stated: by the locks that running it and letting go of it take too."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from proctor.campaign.lock import UNWRITABLE, still_campaign
from proctor.campaign.scratch import hold_run, scratch_of_runs
from proctor.errors import EvidenceError, MachineError, disk_refusal
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths, RunPaths
from proctor.ids import RunId
from proctor.report.place import Place
from proctor.surface.holdings import run_ids


@contextmanager
def still(place: Place) -> Iterator[None]:
    """Nobody runs or removes anything of it meanwhile.

    MachineError while somebody does, or where the disk refuses; EvidenceError where it went a moment ago.
    """
    with ExitStack() as stack:
        for campaign in _campaigns(place):
            stack.enter_context(still_campaign(campaign))
        for run in _runs_of_none(place):
            stack.enter_context(_still_run(run))
        if not place.folder.is_dir():
            raise EvidenceError("evidence.missing-file", "absent", file=place.folder.name)
        yield


def _campaigns(place: Place) -> list[CampaignPaths]:
    match place:
        case CampaignPaths():
            return [place]
        case RootPaths():
            return list(place.campaigns())
    run = _run_of(place)
    root = RootPaths(run.folder.parent.parent)
    return [each for each in root.campaigns() if run.folder.name in run_ids(root, each)]


def _runs_of_none(place: Place) -> list[RunPaths]:
    match place:
        case CampaignPaths():
            return []
        case RootPaths():
            cited = {id_ for each in place.campaigns() for id_ in run_ids(place, each)}
            return [run for run in place.runs() if run.folder.name not in cited]
    run = _run_of(place)
    # Elsewhere nothing is run or removed: it is a copy.
    is_kept_here = run.folder.parent.name in ("runs", "sessions")
    return [run] if is_kept_here and not _campaigns(place) else []


def _run_of(place: RunPaths | AttemptPaths) -> RunPaths:
    folder = place.folder.absolute()
    return RunPaths(folder.parent.parent if isinstance(place, AttemptPaths) else folder)


@contextmanager
def _still_run(run: RunPaths) -> Iterator[None]:
    name = run.folder.name
    with ExitStack() as stack:
        try:
            is_ours = stack.enter_context(hold_run(RunId(name)))
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise disk_refusal(error, path=scratch_of_runs() / name) from error
            is_ours = True  # without a place for its lock it is not let go of either
        if not is_ours:
            raise MachineError("machine.locked", f"{name} is going on, or is let go of by another Proctor")
        yield
