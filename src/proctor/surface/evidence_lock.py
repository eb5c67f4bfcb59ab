"""Lock evidence while it is signed or attested, with the locks that running and deleting it take, too."""

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
def lock_evidence(place: Place) -> Iterator[None]:
    """Keep other processes from deleting evidence, and from running it unless `place` is a whole evidence root.

    Raises MachineError while another process does so, or if the file system refuses; EvidenceError if the evidence
    was deleted meanwhile.
    """
    with ExitStack() as stack:
        if isinstance(place, RootPaths):
            # One lock for the whole root: a process cannot hold open a lock file per run.
            stack.enter_context(_lock_root(place))
        elif isinstance(place, CampaignPaths):
            stack.enter_context(still_campaign(place))
        else:
            stack.enter_context(_lock_run(_run_of(place)))
        if not place.folder.is_dir():
            raise EvidenceError("evidence.missing-file", "absent", file=place.folder.name)
        yield


@contextmanager
def _lock_root(root: RootPaths) -> Iterator[None]:
    if not os.access(root.folder, os.W_OK):
        yield  # nothing can be deleted from it
        return
    with hold_root(root):
        yield


def _run_of(place: RunPaths | AttemptPaths) -> RunPaths:
    folder = place.folder.absolute()
    return RunPaths(folder.parent.parent if isinstance(place, AttemptPaths) else folder)


@contextmanager
def _lock_run(run: RunPaths) -> Iterator[None]:
    """Lock a run by its campaigns' locks, or by its own lock if it belongs to none.

    A run outside of an evidence root is a copy, which is neither run nor deleted by Proctor, and needs no lock.
    """
    name, root = run.folder.name, RootPaths(run.folder.parent.parent)
    campaigns = [each for each in root.campaigns() if name in run_ids(root, each)]
    with ExitStack() as stack:
        for campaign in campaigns:
            stack.enter_context(still_campaign(campaign))
        if not campaigns and run.folder.parent.name == "runs":
            stack.enter_context(_lock_orphan(name))
        yield


@contextmanager
def _lock_orphan(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            is_ours = stack.enter_context(hold_run(RunId(name)))
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise disk_error(error, path=scratch_of_runs() / name) from error
            is_ours = True  # `gc` cannot lock it either, so it does not delete it
        if not is_ours:
            raise MachineError("machine.locked", f"{name} is being run or deleted by another Proctor")
        yield
