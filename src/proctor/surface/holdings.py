"""Everything that takes room and may be let go of: campaigns with their runs, runs of none, sessions, kept scratch."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from proctor.campaign.retention import Unit
from proctor.campaign.scratch import is_locked, kept_scratch, scratch_of_runs
from proctor.evidence.database import address
from proctor.evidence.layout import SEAL_SIGNATURE, CampaignPaths, RootPaths
from proctor.report.ledger import is_live
from proctor.report.query import find_run

# Somebody may be about to take its lock.
_FRESH_MS = 60_000

_WRITTEN = ("ledger.db", "ledger.db-wal", "plan.json", "report.json", "RESULTS.md")
"""Files that tell when a campaign was last at work; a pin or a look at it is none."""


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Statement(msgspec.Struct, frozen=True):
    type: str = msgspec.field(name="_type")
    subject: tuple[_Named, ...] = ()


def find_units(root: RootPaths, *, now_ms: int) -> Iterator[Unit]:
    """Each folder is in one unit, and a run that two campaigns cite is in neither until one of them is gone."""
    campaigns = {campaign: run_ids(root, campaign) for campaign in root.campaigns()}
    stated = set(stated_runs(root))
    pinned: set[str] = set()
    for campaign, ids in campaigns.items():
        cited = {other for each, others in campaigns.items() if each != campaign for other in others}
        there = [folder for id_ in ids if id_ not in cited and (folder := root.folder / "runs" / id_).is_dir()]
        touched = [_mtime_ms(campaign.folder / name) for name in _WRITTEN]
        if os.path.lexists(campaign.pin):
            pinned |= set(ids)
        yield Unit(
            kind="campaign",
            name=campaign.folder.name,
            folders=(campaign.folder, *there),
            touched_at_ms=(touched_at_ms := max(*touched, *map(_touched_ms, there), 0)),
            size_bytes=size_of(campaign.folder, *there),
            stays=_reason(
                ("pinned", os.path.lexists(campaign.pin)),
                ("running", is_live(campaign)),
                ("just made", now_ms - touched_at_ms < _FRESH_MS),
                ("signed", any(map(_is_signed, there))),
                ("named by a statement", not stated.isdisjoint(ids)),
            ),
        )
    known = {id_ for ids in campaigns.values() for id_ in ids}
    for run in root.runs():
        name, folder = run.folder.name, run.folder
        if name not in known:
            yield Unit(
                kind="run" if folder.parent.name == "runs" else "session",
                name=name,
                folders=(folder,),
                touched_at_ms=(touched_at_ms := _touched_ms(folder)),
                size_bytes=size_of(folder),
                stays=_reason(
                    ("running", is_locked(scratch_of_runs() / name)),
                    ("just made", now_ms - touched_at_ms < _FRESH_MS),
                    ("signed", _is_signed(folder)),
                    ("named by a statement", name in stated),
                ),
            )
    for scratch in kept_scratch(scratch_of_runs()):
        yield Unit(
            kind="scratch",
            name=scratch.name,
            folders=(scratch,),
            touched_at_ms=_touched_ms(scratch),
            size_bytes=size_of(scratch),
            stays=_reason(("running", is_locked(scratch)), ("of a pinned campaign", scratch.name in pinned)),
        )


def run_ids(root: RootPaths, campaign: CampaignPaths) -> tuple[str, ...]:
    """By its ledger; else the runs whose attempts name it. Only such as are there: a ledger may say anything."""
    there = {run.folder.name: run for run in root.runs()}
    if campaign.ledger.is_file():  # to open one that is not would make it
        with suppress(sqlite3.Error), closing(sqlite3.connect(address(campaign.ledger), uri=True)) as connection:
            return tuple(run for (run,) in connection.execute("select id from run") if run in there)
    name = campaign.folder.name
    return tuple(id_ for id_, run in there.items() if any(row.campaign_id == name for row in find_run(run).rows))


def stated_runs(root: RootPaths) -> Iterator[str]:
    """Runs that an in-toto statement in the root itself names."""
    for file in sorted(root.folder.glob("*.json")):
        with suppress(OSError, msgspec.MsgspecError):
            told = msgspec.json.decode(file.read_bytes(), type=_Statement)
            yield from {each.name.partition("/")[0] for each in told.subject}


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
    """When anything was last made or taken away in it. An attempt's folder is touched last by its seal."""
    inner = (folder, *folder.glob("*"), *folder.glob("*/*"))
    return max(map(_mtime_ms, inner))


def size_of(*folders: Path) -> int:
    """What they take of the disk."""
    total, pending = 0, list(map(str, folders))
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return total
