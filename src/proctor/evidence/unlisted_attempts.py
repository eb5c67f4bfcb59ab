"""Finds attempts on disk that their campaign's ledger has lost."""

from collections.abc import Container, Iterator, Mapping
from contextlib import suppress

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.layout import AttemptPaths, RootPaths, RunPaths
from proctor.evidence.reader import read_artifact
from proctor.ids import CampaignId, RunId

Owners = Mapping[RunId, CampaignId]
"""The campaign of each run."""


def owners_of_runs(root: RootPaths) -> Owners:
    """Return the campaign of each run, as the first readable attempt.json of the run names it."""
    owners = {RunId(run.folder.name): _owner(run) for run in root.runs()}
    return {run_id: owner for run_id, owner in owners.items() if owner is not None}


def _owner(run: RunPaths) -> CampaignId | None:
    with suppress(OSError):
        for paths in run.attempts():
            with suppress(EvidenceError):
                return read_artifact(paths.attempt, AttemptRecord).campaign_id
    return None


def find_unlisted_attempts(
    root: RootPaths, campaign_id: CampaignId, *, named: Mapping[RunId, Container[str]], owners: Owners
) -> Iterator[AttemptPaths]:
    """Yield the unlisted attempts in every run that belongs to the campaign by its ledger or by its attempts.

    `named` are the attempts in the ledger, by run.
    """
    for run_id in sorted({*named, *(run for run, owner in owners.items() if owner == campaign_id)}):
        with suppress(OSError):
            for paths in root.run(run_id).attempts():
                if paths.folder.name not in named.get(run_id, ()):
                    yield paths
