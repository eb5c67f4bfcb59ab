"""Find the evidence that a command-line argument names: a path, a campaign, a run or an attempt."""

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
RUN_ONE = "Run a campaign with `proctor run SPEC`, or pass another evidence root with --root."

Place = RootPaths | CampaignPaths | RunPaths | AttemptPaths


def find_place(word: str, *, root: RootPaths) -> Place:
    """Find evidence by its path, then by the id of a campaign or run, a campaign's name, or as `find_attempt` does.

    A name means the latest campaign of that name. The beginning of a campaign's id is enough if no other begins so.
    Raises InputError if nothing matches, and AmbiguousError if several do.
    """
    if (folder := _evidence_folder(word)) is not None:
        return folder
    campaigns = campaigns_by_age(root)
    known: list[Place] = [*campaigns, *root.runs()]
    for place in known:
        if place.folder.name == word:
            return place
    if same_name := [each for each in campaigns if each.folder.name[: -STAMP_CHARS - 1] == word]:
        return same_name[-1]
    same_prefix = [each for each in campaigns if each.folder.name.startswith(word)]
    if len(same_prefix) == 1:
        return same_prefix[0]
    try:
        return find_attempt(word, root=root)
    except InputError as error:
        if same_prefix and not isinstance(error, AmbiguousError):
            names = [each.folder.name for each in reversed(same_prefix)]
            raise AmbiguousError(word, names, kind="campaign") from error
        if error.code == "evidence.not-found":
            what = f"no campaign or attempt under {root.folder} is called {word!r}"
            is_folder = Path(word).is_dir()
            message = f"there is no evidence in {word}, and {what}" if is_folder else what
            raise _not_found(message, suggestion=_suggest_campaign(word, campaigns)) from error
        raise


def _evidence_folder(word: str) -> Place | None:
    """Return the evidence at a path; None if the word may be a name, and no folder of that name contains evidence."""
    path = Path(word)
    is_path = path.is_absolute() or word.startswith(".")
    if path.is_dir():
        return place_of(path) if is_path else _classify(path)
    if is_path:
        raise _not_found(f"there is no folder {word}", suggestion="Pass a folder that exists.")
    return None


def place_of(folder: Path, *, suggestion: str | None = None) -> Place:
    """Return the kind of an evidence folder, by its content and location. Raises InputError if it has no evidence."""
    place = _classify(folder)
    if place is None:
        raise _not_found(f"there is no evidence in {folder}", suggestion=suggestion)
    return place


def _classify(folder: Path) -> Place | None:
    parent = folder.absolute().parent.name
    if parent == "attempts" or any(os.path.lexists(folder / name) for name in (ATTEMPT, SEAL)):
        return AttemptPaths(folder)
    if parent == "runs" or (folder / "attempts").is_dir():
        return RunPaths(folder)
    if parent == "campaigns" or (folder / "ledger.db").exists():
        return CampaignPaths(folder)
    if any((folder / name).is_dir() for name in ("runs", "campaigns", "sessions")):
        return RootPaths(folder)
    return None


def root_of(campaign: CampaignPaths) -> RootPaths:
    """Return the evidence root of a campaign."""
    return RootPaths(campaign.folder.parent.parent)


def latest_campaign(root: RootPaths) -> CampaignPaths:
    """Return the latest campaign. Raises InputError if there is no campaign."""
    campaigns = campaigns_by_age(root)
    if not campaigns:
        raise _not_found(f"there is no campaign under {root.folder}", suggestion=first_command() or RUN_ONE)
    return campaigns[-1]


def first_command() -> str | None:
    """Return the command that runs the example, if the example exists."""
    return f"proctor run {EXAMPLE}" if EXAMPLE.is_file() else None


def find_attempt(word: str, *, root: RootPaths) -> AttemptPaths:
    """Find an attempt by its path, RUN/ATTEMPT, its id, its trial's id, or the unique beginning of an id.

    If several runs have an attempt of this id, the attempt of the latest run is returned; for a trial, its result.
    Raises InputError if nothing matches, and AmbiguousError if several do.
    """
    folder = _evidence_folder(word)
    if isinstance(folder, AttemptPaths):
        return folder
    if folder is not None:
        raise _not_found(f"{word} is not the folder of one attempt")
    return _existing_paths(find_attempt_row(word, root=root))


def find_attempt_row(word: str, *, root: RootPaths) -> AttemptRow:
    """Find an attempt as `find_attempt` does, but not by its path. Raises the same errors."""
    rows = list_attempts(root).rows
    for matches in (_match_id(rows, word), _match_trial(rows, word), _match_prefix(rows, word)):
        latest = {row.attempt_id: row for row in sorted(matches, key=lambda row: row.run_id)}
        if len(latest) == 1:
            [row] = latest.values()
            return row
        if latest:
            raise AmbiguousError(word, [row.ref for row in reversed(latest.values())], kind="attempt")
    raise _not_found(f"no attempt under {root.folder} is called {word!r}")


def _suggest_campaign(word: str, campaigns: Sequence[CampaignPaths]) -> str:
    if not campaigns:
        return first_command() or RUN_ONE
    close = nearest(word, {each.folder.name[: -STAMP_CHARS - 1] for each in campaigns})
    command = "proctor campaign list"
    return command if close is None else f"Did you mean `{close}`? `{command}` lists all campaigns."


def _existing_paths(row: AttemptRow) -> AttemptPaths:
    folder = Path(row.dir)
    if not folder.is_dir():
        raise EvidenceError("evidence.ledger", f"the ledger has {row.ref}, but its folder does not exist", file=row.dir)
    return AttemptPaths(folder)


def _match_id(rows: Sequence[AttemptRow], word: str) -> list[AttemptRow]:
    return [row for row in rows if word in (row.ref, row.attempt_id)]


def _match_trial(rows: Sequence[AttemptRow], trial: str) -> list[AttemptRow]:
    """Return the result of a trial in the latest campaign that has it. The latest rows are last."""
    tries = [row for row in rows if row.trial == trial]
    latest = [row for row in tries if row.campaign_id == tries[-1].campaign_id and not row.is_superseded]
    return latest[:1]


def _match_prefix(rows: Sequence[AttemptRow], word: str) -> list[AttemptRow]:
    run, slash, attempt = word.partition("/")
    if slash:
        return [row for row in rows if row.run_id.startswith(run) and row.attempt_id.startswith(attempt)]
    return [row for row in rows if row.attempt_id.startswith(word) or row.run_id.startswith(word)]


def _not_found(what: str, *, suggestion: str | None = None) -> InputError:
    return InputError("evidence.not-found", what, suggestion=suggestion)
