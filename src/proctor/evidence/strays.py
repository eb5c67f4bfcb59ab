"""Attempts on disk that the ledger of their campaign does not name: it lost what it was told of them."""

from collections.abc import Container, Iterator, Mapping
from contextlib import suppress

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.layout import AttemptPaths, RootPaths, RunPaths
from proctor.evidence.reader import read_artifact
from proctor.ids import CampaignId, RunId

Owners = Mapping[RunId, CampaignId]


def owners_of_runs(root: RootPaths) -> Owners:
    """Which campaign each run is of, by the first of its attempts that says so."""
    owners = {RunId(run.folder.name): _owner(run) for run in root.runs()}
    return {run_id: owner for run_id, owner in owners.items() if owner is not None}


def _owner(run: RunPaths) -> CampaignId | None:
    with suppress(OSError):
        for paths in run.attempts():
            with suppress(EvidenceError):
                return read_artifact(paths.attempt, AttemptRecord).campaign_id
    return None


def strays(
    root: RootPaths, campaign_id: CampaignId, *, named: Mapping[RunId, Container[str]], owners: Owners
) -> Iterator[AttemptPaths]:
    """Of every run that it names or that names it. `named` are the attempts that the ledger has, by their runs."""
    for run_id in sorted({*named, *(run for run, owner in owners.items() if owner == campaign_id)}):
        with suppress(OSError):
            for paths in root.run(run_id).attempts():
                if paths.folder.name not in named.get(run_id, ()):
                    yield paths
