"""Find what `proctor gc` may delete: campaigns with their runs, other runs and kept scratch folders."""

import os
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from proctor.campaign.kept_trials import KeptTrials
from proctor.campaign.retention import GcUnit, Kind
from proctor.campaign.scratch import is_locked, kept_scratch, scratch_of_runs
from proctor.context.report import sessions_by_run
from proctor.errors import EvidenceError
from proctor.evidence.layout import SEAL_SIGNATURE, CampaignPaths, RootPaths
from proctor.evidence.reader import read_artifact
from proctor.ids import CampaignId, RunId, SessionKey
from proctor.ledger.reader import is_live, read_run_ids
from proctor.report.campaign_state import load_run
from proctor.report.evidence_index import EvidenceIndex

# A folder this new may belong to a process that has not taken its lock yet.
_FRESH_MS = 60_000

_WRITTEN = ("ledger.db", "ledger.db-wal", "plan.json", "report.json", "RESULTS.md")
"""Files whose modification times show when a campaign was last active. Pinning or reading it changes none of them."""


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Statement(msgspec.Struct, frozen=True):
    type: str = msgspec.field(name="_type")
    subject: tuple[_Named, ...] = ()


def find_units(root: RootPaths, *, now_ms: int) -> Iterator[GcUnit]:
    """Yield all units, the reason to keep each included.

    Every folder belongs to one unit; a run that two campaigns share belongs to none until one of them is deleted.
    """
    campaigns = {campaign: run_ids(root, campaign) for campaign in root.campaigns()}
    stated = set(stated_runs(root))
    sessions = sessions_by_run(root)
    pinned: set[str] = set()
    for campaign, ids in campaigns.items():
        cited = {other for each, others in campaigns.items() if each != campaign for other in others}
        there = [folder for id_ in ids if id_ not in cited and (folder := root.folder / "runs" / id_).is_dir()]
        if os.path.lexists(campaign.pin):
            pinned |= set(ids)
        unit = _unit("campaign", campaign.folder, *there)
        kept = KeptTrials.of(root, CampaignId(campaign.folder.name))
        unit = replace(unit, size_bytes=unit.size_bytes + size_of(kept.folder))
        yield replace(unit, stays=_why(unit, ids=ids, stated=stated, now_ms=now_ms, is_running=is_live(campaign)))
    known = {id_ for ids in campaigns.values() for id_ in ids}
    for run in root.runs():
        name, folder = run.folder.name, run.folder
        if name not in known:
            unit = _unit("run", folder)
            is_running = is_locked(scratch_of_runs() / name)
            why = _why(unit, ids=(name,), stated=stated, now_ms=now_ms, is_running=is_running)
            yield replace(unit, stays=why or _needed_by(sessions.get(RunId(name))))
    for scratch in kept_scratch(scratch_of_runs()):
        stays = _reason(("running", is_locked(scratch)), ("belongs to a pinned campaign", scratch.name in pinned))
        yield replace(_unit("scratch", scratch), stays=stays)


def why_still(unit: GcUnit, root: RootPaths, *, now_ms: int) -> str | None:
    """Return why a campaign or run must be kept, by what is on disk now; None if it may be deleted.

    The caller must hold its lock.
    """
    folders = places_of(unit)
    ids = run_ids(root, CampaignPaths(folders[0])) if unit.kind == "campaign" else (unit.name,)
    unit = replace(unit, touched_at_ms=_last_active_ms(unit.kind, folders))
    why = _why(unit, ids=ids, stated=set(stated_runs(root)), now_ms=now_ms, is_running=False)
    return why or (None if unit.kind == "campaign" else _needed_by(sessions_by_run(root).get(RunId(unit.name))))


def _needed_by(session: SessionKey | None) -> str | None:
    """Return why the run of a session must be kept: without it, the session can be neither verified nor rebuilt."""
    return None if session is None else f"belongs to the session {session}"


def is_needed(run: Path, root: RootPaths) -> bool:
    """Return whether others may rely on a run: it is signed, or a statement names it."""
    return _is_signed(run) or run.name in set(stated_runs(root))


def places_of(unit: GcUnit) -> tuple[Path, ...]:
    """Return the folders of a unit. Of a campaign, its own folder is first and those of its runs follow."""
    return tuple(map(Path, unit.folders))


def _unit(kind: Kind, *folders: Path) -> GcUnit:
    return GcUnit(
        kind=kind,
        name=folders[0].name,
        folders=tuple(map(str, folders)),
        touched_at_ms=_last_active_ms(kind, folders),
        size_bytes=size_of(*folders),
    )


def _last_active_ms(kind: Kind, folders: Sequence[Path]) -> int:
    if kind != "campaign":
        return max(map(_touched_ms, folders))
    campaign, *runs = folders
    return max(*(_mtime_ms(campaign / name) for name in _WRITTEN), *map(_touched_ms, runs), 0)


def _why(unit: GcUnit, *, ids: Iterable[str], stated: AbstractSet[str], now_ms: int, is_running: bool) -> str | None:
    is_campaign, folders = unit.kind == "campaign", places_of(unit)
    runs = folders[1:] if is_campaign else folders
    return _reason(
        ("pinned", is_campaign and os.path.lexists(CampaignPaths(folders[0]).pin)),
        ("running", is_running),
        ("just created", now_ms - unit.touched_at_ms < _FRESH_MS),
        ("signed", any(map(_is_signed, runs))),
        ("named by a statement", not stated.isdisjoint(ids)),
    )


def run_ids(root: RootPaths, campaign: CampaignPaths) -> tuple[str, ...]:
    """Return the existing runs of a campaign, by its ledger; if that cannot be read, by the runs' attempts.

    Runs that a ledger lists but that do not exist are left out: a ledger may be damaged.
    """
    there = {run.folder.name: run for run in root.runs()}
    with suppress(EvidenceError):
        return tuple(run for run in read_run_ids(campaign) if run in there)
    name, index = campaign.folder.name, EvidenceIndex()
    return tuple(
        id_ for id_, run in there.items() if any(row.campaign_id == name for row in load_run(run, index=index).attempts)
    )


def stated_runs(root: RootPaths) -> Iterator[str]:
    """Yield the runs that an in-toto statement in the root folder names. The statement may be a symbolic link."""
    for file in sorted(root.folder.glob("*.json")):
        with suppress(EvidenceError):
            statement = read_artifact(Path(os.path.realpath(file)), _Statement)
            yield from {each.name.partition("/")[0] for each in statement.subject}


def _reason(*reasons: tuple[str, bool]) -> str | None:
    return next((why for why, holds in reasons if holds), None)


def _is_signed(run: Path) -> bool:
    signatures = (*run.glob(f"attempts/*/{SEAL_SIGNATURE}"), *run.glob("runtimes/*/process.json.sig"))
    return bool(signatures)


def _mtime_ms(path: Path) -> int:
    with suppress(OSError):
        return path.lstat().st_mtime_ns // 1_000_000
    return 0


def _touched_ms(folder: Path) -> int:
    """Return when something was last created or deleted in a folder or its subfolders, in milliseconds since the epoch.

    The last change of an attempt's folder is its seal.
    """
    inner = (folder, *folder.glob("*"), *folder.glob("*/*"))
    return max(map(_mtime_ms, inner))


def size_of(*folders: Path) -> int:
    """Return the disk space that folders take, in bytes."""
    total, pending = 0, list(map(str, folders))
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return total
