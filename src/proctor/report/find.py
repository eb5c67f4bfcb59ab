"""What a word on the command line means: a path, a campaign, a run, or one attempt among many."""

import os
from collections.abc import Sequence
from pathlib import Path

from proctor.errors import EvidenceError, InputError
from proctor.evidence.layout import ATTEMPT, SEAL, AttemptPaths, CampaignPaths, RootPaths, RunPaths
from proctor.report.ambiguous import AmbiguousError
from proctor.report.campaign_state import STAMP_CHARS, campaigns_by_age, list_attempts
from proctor.report.row import AttemptRow
from proctor.spec.suggest import nearest

EXAMPLE = Path("examples/quickstart.yaml")

Place = RootPaths | CampaignPaths | RunPaths | AttemptPaths


def find_place(word: str, *, root: RootPaths) -> Place:
    """A folder of evidence by its path; else a campaign or run by its id, a campaign by its name, or an attempt.

    Of campaigns of one name the latest is meant; else a campaign's id may be cut short where only one begins so.
    """
    if (there := _folder_of_evidence(word)) is not None:
        return there
    campaigns = campaigns_by_age(root)
    known: list[Place] = [*campaigns, *root.runs()]
    for place in known:
        if place.folder.name == word:
            return place
    if named := [each for each in campaigns if each.folder.name[: -STAMP_CHARS - 1] == word]:
        return named[-1]
    begun = [each for each in campaigns if each.folder.name.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    try:
        return find_attempt(word, root=root)
    except InputError as error:
        if begun and not isinstance(error, AmbiguousError):
            names = [each.folder.name for each in reversed(begun)]
            raise AmbiguousError(word, names, kind="campaign") from error
        if error.code == "evidence.not-found":
            what = f"no campaign or attempt under {root.folder} is called {word!r}"
            is_folder = Path(word).is_dir()
            told = f"there is no evidence in {word}, and {what}" if is_folder else what
            raise _not_found(told, suggestion=_near(word, campaigns)) from error
        raise


def _folder_of_evidence(word: str) -> Place | None:
    """What lies at a path. A folder without evidence is none, where the word may be a name as well."""
    path = Path(word)
    is_path = path.is_absolute() or word.startswith(".")
    if path.is_dir():
        return place_of(path) if is_path else _kind(path)
    if is_path:
        raise _not_found(f"there is no folder {word}")
    return None


def place_of(folder: Path) -> Place:
    """What kind of evidence folder this is, told by what it holds, else by where it lies."""
    place = _kind(folder)
    if place is None:
        raise _not_found(f"there is no evidence in {folder}")
    return place


def _kind(folder: Path) -> Place | None:
    above = folder.absolute().parent.name
    if above == "attempts" or any(os.path.lexists(folder / name) for name in (ATTEMPT, SEAL)):
        return AttemptPaths(folder)
    if above in ("runs", "sessions") or (folder / "attempts").is_dir():
        return RunPaths(folder)
    if above == "campaigns" or (folder / "ledger.db").exists():
        return CampaignPaths(folder)
    if any((folder / name).is_dir() for name in ("runs", "campaigns", "sessions")):
        return RootPaths(folder)
    return None


def root_of(campaign: CampaignPaths) -> RootPaths:
    return RootPaths(campaign.folder.parent.parent)


def latest_campaign(root: RootPaths) -> CampaignPaths:
    campaigns = campaigns_by_age(root)
    if not campaigns:
        raise _not_found(f"there is no campaign under {root.folder}", suggestion=first_command())
    return campaigns[-1]


def first_command() -> str | None:
    """What makes the first evidence, where the example is at hand."""
    return f"proctor run {EXAMPLE}" if EXAMPLE.is_file() else None


def find_attempt(word: str, *, root: RootPaths) -> AttemptPaths:
    """One attempt: a path, RUN/ATTEMPT, an attempt's id, that of a trial, or a beginning of either that only one id
    has.

    Where several runs have an attempt of this id, the latest run's is meant; of a trial, the attempt that counts.
    """
    there = _folder_of_evidence(word)
    if isinstance(there, AttemptPaths):
        return there
    if there is not None:
        raise _not_found(f"{word} is not the folder of one attempt")
    rows = list_attempts(root).rows
    for matches in (_named(rows, word), _counting(rows, word), _beginning(rows, word)):
        latest = {row.attempt_id: row for row in sorted(matches, key=lambda row: row.run_id)}
        if len(latest) == 1:
            return _on_disk(*latest.values())
        if latest:
            raise AmbiguousError(word, [row.ref for row in reversed(latest.values())], kind="attempt")
    raise _not_found(f"no attempt under {root.folder} is called {word!r}")


def _near(word: str, campaigns: Sequence[CampaignPaths]) -> str:
    close = nearest(word, {each.folder.name[: -STAMP_CHARS - 1] for each in campaigns})
    listed = "proctor campaign list"
    return listed if close is None else f"Did you mean `{close}`? `{listed}` shows all."


def _on_disk(row: AttemptRow) -> AttemptPaths:
    folder = Path(row.dir)
    if not folder.is_dir():
        raise EvidenceError("evidence.ledger", f"the ledger has {row.ref}, but its folder is gone", file=row.dir)
    return AttemptPaths(folder)


def _named(rows: Sequence[AttemptRow], word: str) -> list[AttemptRow]:
    return [row for row in rows if word in (row.ref, row.attempt_id)]


def _counting(rows: Sequence[AttemptRow], trial: str) -> list[AttemptRow]:
    """The attempt that counts of a trial of that name, in the latest campaign that has it. The latest rows
    come last.
    """
    of_it = [row for row in rows if row.trial == trial]
    latest = [row for row in of_it if row.campaign_id == of_it[-1].campaign_id and not row.is_superseded]
    return latest[:1]


def _beginning(rows: Sequence[AttemptRow], word: str) -> list[AttemptRow]:
    run, slash, attempt = word.partition("/")
    if slash:
        return [row for row in rows if row.run_id.startswith(run) and row.attempt_id.startswith(attempt)]
    return [row for row in rows if row.attempt_id.startswith(word) or row.run_id.startswith(word)]


def _not_found(what: str, *, suggestion: str | None = None) -> InputError:
    return InputError("evidence.not-found", what, suggestion=suggestion)
