"""What a word on the command line means: a path, a campaign, a run, or one attempt among many."""

import os
from collections.abc import Sequence
from pathlib import Path

from proctor.errors import EvidenceError, InputError
from proctor.evidence.layout import ATTEMPT, SEAL, AttemptPaths, CampaignPaths, RootPaths, RunPaths
from proctor.report.query import campaigns_by_age, find_all
from proctor.report.row import AttemptRow

_MAX_CANDIDATES = 12

Place = RootPaths | CampaignPaths | RunPaths | AttemptPaths


def find_place(word: str, *, root: RootPaths) -> Place:
    """A folder of evidence by its path; else a campaign's id, a run's id or an attempt."""
    path = Path(word)
    if path.is_dir():
        return place_of(path)
    if path.is_absolute() or word.startswith("."):
        raise _not_found(f"there is no folder {word}")
    known: list[Place] = [*root.campaigns(), *root.runs()]
    for place in known:
        if place.folder.name == word:
            return place
    return find_attempt(word, root=root)


def place_of(folder: Path) -> Place:
    """What kind of evidence folder this is, told by what it holds, else by where it lies."""
    above = folder.absolute().parent.name
    if above == "attempts" or any(os.path.lexists(folder / name) for name in (ATTEMPT, SEAL)):
        return AttemptPaths(folder)
    if above == "runs" or (folder / "attempts").is_dir():
        return RunPaths(folder)
    if above == "campaigns" or (folder / "ledger.db").exists():
        return CampaignPaths(folder)
    if (folder / "runs").is_dir() or (folder / "campaigns").is_dir():
        return RootPaths(folder)
    raise _not_found(f"there is no evidence in {folder}")


def root_of(campaign: CampaignPaths) -> RootPaths:
    return RootPaths(campaign.folder.parent.parent)


def latest_campaign(root: RootPaths) -> CampaignPaths:
    campaigns = campaigns_by_age(root)
    if not campaigns:
        raise _not_found(f"there is no campaign under {root.folder}", suggestion="proctor run examples/quickstart.yaml")
    return campaigns[-1]


def find_attempt(word: str, *, root: RootPaths) -> AttemptPaths:
    """One attempt: a path, RUN/ATTEMPT, an attempt's id, or a beginning of either that only one attempt has."""
    path = Path(word)
    if path.is_dir():
        place = place_of(path)
        if isinstance(place, AttemptPaths):
            return place
        raise _not_found(f"{path} is not the folder of one attempt")
    if path.is_absolute() or word.startswith("."):
        raise _not_found(f"there is no folder {word}")
    rows = find_all(root).rows
    for matches in (_named(rows, word), _beginning(rows, word)):
        if len(matches) == 1:
            return _on_disk(matches[0])
        if matches:
            raise _ambiguous(word, matches)
    raise _not_found(f"no attempt under {root.folder} is called {word!r}")


def _on_disk(row: AttemptRow) -> AttemptPaths:
    folder = Path(row.dir)
    if not folder.is_dir():
        raise EvidenceError("evidence.ledger", f"the ledger has {row.ref}, but its folder is gone", file=row.dir)
    return AttemptPaths(folder)


def _named(rows: Sequence[AttemptRow], word: str) -> list[AttemptRow]:
    return [row for row in rows if word in (row.ref, row.attempt_id)]


def _beginning(rows: Sequence[AttemptRow], word: str) -> list[AttemptRow]:
    run, slash, attempt = word.partition("/")
    if slash:
        return [row for row in rows if row.run_id.startswith(run) and row.attempt_id.startswith(attempt)]
    return [row for row in rows if row.attempt_id.startswith(word) or row.run_id.startswith(word)]


def _ambiguous(word: str, matches: Sequence[AttemptRow]) -> InputError:
    latest = matches[-_MAX_CANDIDATES:]
    more = f" and {len(matches) - len(latest)} more" if len(matches) > len(latest) else ""
    return InputError(
        "evidence.ambiguous",
        f"{word!r} may mean {len(matches)} attempts: {', '.join(row.ref for row in latest)}{more}",
        suggestion=latest[-1].ref,
    )


def _not_found(what: str, *, suggestion: str | None = None) -> InputError:
    return InputError("evidence.not-found", what, suggestion=suggestion)
