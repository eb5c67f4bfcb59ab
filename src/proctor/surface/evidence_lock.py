"""Holding evidence still while it is signed or stated: by the locks that running it and letting go of it take too."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from proctor.campaign.lock import UNWRITABLE, still_campaign
from proctor.campaign.scratch import hold_run, scratch_of_runs
from proctor.errors import EvidenceError, MachineError, disk_error
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths, RunPaths
from proctor.ids import RunId
from proctor.report.find import Place
from proctor.surface.gc import hold_root
from proctor.surface.gc_units import run_ids


@contextmanager
def still(place: Place) -> Iterator[None]:
    """Nobody removes anything of it meanwhile, nor runs it where it is less than a root.

    MachineError while somebody does, or where the disk refuses; EvidenceError where it went a moment ago.
    """
    with ExitStack() as stack:
        if isinstance(place, RootPaths):
            # One lock and not each of them: there may be more than a process can hold.
            stack.enter_context(_still_root(place))
        elif isinstance(place, CampaignPaths):
            stack.enter_context(still_campaign(place))
        else:
            stack.enter_context(_still_run(_run_of(place)))
        if not place.folder.is_dir():
            raise EvidenceError("evidence.missing-file", "absent", file=place.folder.name)
        yield


@contextmanager
def _still_root(root: RootPaths) -> Iterator[None]:
    if not os.access(root.folder, os.W_OK):
        yield  # then nothing goes from it
        return
    with hold_root(root):
        yield


def _run_of(place: RunPaths | AttemptPaths) -> RunPaths:
    folder = place.folder.absolute()
    return RunPaths(folder.parent.parent if isinstance(place, AttemptPaths) else folder)


@contextmanager
def _still_run(run: RunPaths) -> Iterator[None]:
    """By the campaigns that have it; else by its own lock. Elsewhere it is a copy, which nobody runs or removes."""
    name, root = run.folder.name, RootPaths(run.folder.parent.parent)
    campaigns = [each for each in root.campaigns() if name in run_ids(root, each)]
    with ExitStack() as stack:
        for campaign in campaigns:
            stack.enter_context(still_campaign(campaign))
        if not campaigns and run.folder.parent.name in ("runs", "sessions"):
            stack.enter_context(_still_alone(name))
        yield


@contextmanager
def _still_alone(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            is_ours = stack.enter_context(hold_run(RunId(name)))
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise disk_error(error, path=scratch_of_runs() / name) from error
            is_ours = True  # without a place for its lock it is not let go of either
        if not is_ours:
            raise MachineError("machine.locked", f"{name} is going on, or is let go of by another Proctor")
        yield
