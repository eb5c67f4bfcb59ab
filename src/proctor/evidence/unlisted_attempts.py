"""Finds attempts on disk that their campaign's ledger has lost."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.layout import AttemptPaths, RootPaths
from proctor.evidence.reader import read_artifact
from proctor.ids import CampaignId, RunId

Owners = Mapping[RunId, CampaignId]
"""The campaign of each run."""


def read_campaign_id(paths: AttemptPaths) -> CampaignId | None:
    """Return the campaign that attempt.json names; None if it cannot be read."""
    with suppress(EvidenceError):
        return read_artifact(paths.attempt, AttemptRecord).campaign_id
    return None


def owners_of_runs(
    root: RootPaths,
    *,
    campaign_of: Callable[[AttemptPaths], CampaignId | None] = read_campaign_id,
    known: Owners | None = None,
) -> Owners:
    """Return the campaign of each run, as the first of its attempts that can be read names it.

    The attempts of the runs in `known` are not read.
    """
    owners = dict(known or {})
    for run in root.runs():
        if run.folder.name in owners:
            continue
        with suppress(OSError):
            named = (owner for owner in map(campaign_of, run.attempts()) if owner is not None)
            if (owner := next(named, None)) is not None:
                owners[RunId(run.folder.name)] = owner
    return owners


def find_unlisted_attempts(
    campaign_id: CampaignId | None,
    *,
    named: Mapping[RunId, Container[str]],
    owners: Owners,
    on_disk: Callable[[RunId], Iterable[str]],
) -> Iterator[tuple[RunId, str]]:
    """Yield the unlisted attempts in every run that belongs to the campaign by its ledger or by its attempts.

    `named` are the attempts in the ledger, by run, and `on_disk` returns the folders of a run's attempts.
    """
    for run_id in sorted({*named, *(run for run, owner in owners.items() if owner == campaign_id)}):
        yield from ((run_id, name) for name in on_disk(run_id) if name not in named.get(run_id, ()))


def attempt_names(root: RootPaths, run_id: RunId) -> list[str]:
    """Return the names of the attempt folders of a run; none if it cannot be listed."""
    with suppress(OSError):
        return [paths.folder.name for paths in root.run(run_id).attempts()]
    return []
