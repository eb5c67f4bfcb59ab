"""Check an evidence root for `proctor doctor`: unfinished campaigns, locks, retention and the age of prices."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from proctor import places
from proctor.campaign.retention import RetentionRule
from proctor.campaign.scratch import is_locked, scratch_of_runs
from proctor.clock import SYSTEM_CLOCK
from proctor.config.model import Config
from proctor.config.retention import parse_age_s
from proctor.contain.intent import LOCK
from proctor.errors import EvidenceError, InputError
from proctor.evidence.layout import RootPaths
from proctor.report.campaign_state import campaigns_by_age
from proctor.report.format_values import plural
from proctor.spec.model import CampaignSpec
from proctor.spec.prices import decode_prices
from proctor.spec.size import parse_size_bytes
from proctor.spec.source_file import decode_bytes, read_source
from proctor.surface.campaign_status import status_of
from proctor.surface.detect import SPEC
from proctor.surface.finding import DoctorFinding, run_check
from proctor.surface.gc import REMOVED, plan_clearing

_MAX_NAMES = 5
_OLD_PRICES_DAYS = 90


def check_evidence_root(root: RootPaths, config: Config) -> Iterator[DoctorFinding]:
    """Yield the findings about an evidence root, in the order in which a user would fix them."""
    yield from run_check("campaigns", _campaigns, root)
    yield from run_check("locks", _locks, root)
    yield from run_check("retention", _retention, root, config)
    yield from run_check("prices", _prices, Path.cwd())


def _campaigns(root: RootPaths) -> DoctorFinding:
    running: list[str] = []
    left: list[str] = []
    resumable: list[str] = []
    unmade: list[str] = []
    damaged: list[str] = []
    number = 0
    for campaign in reversed(campaigns_by_age(root)):
        number += 1
        try:
            status = status_of(campaign)
        except EvidenceError as error:
            # A campaign whose creation was interrupted has nothing that could be damaged.
            (unmade if error.code == "evidence.partial" else damaged).append(campaign.folder.name)
            continue
        if status.is_live:
            running.append(campaign.folder.name)
        elif status.left.total and status.kind == "campaign":
            left.append(campaign.folder.name)
            resumable += [campaign.folder.name] if status.can_resume else []
    counts = ((running, "running"), (left, "unfinished"), (unmade, "interrupted before anything ran"))
    parts = [f"{len(names)} {word}" for names, word in counts if names]
    facts = {"running": running, "notDone": left, "unmade": unmade, "damaged": damaged}
    if damaged:
        what = f"cannot read the ledger of {plural(len(damaged), 'campaign')}"
        todo = f"proctor validate {damaged[0]}"
        return DoctorFinding(name="campaigns", status="fail", what=what, more=tuple(damaged), todo=todo, facts=facts)
    return DoctorFinding(
        name="campaigns",
        status="warn" if left else "ok",
        what=", ".join([plural(number, "campaign"), *parts]),
        more=tuple(f"unfinished: {name}" for name in left[:_MAX_NAMES]),
        todo=f"proctor campaign resume {resumable[0]}" if resumable else None,
        facts=facts,
    )


def _locks(root: RootPaths) -> DoctorFinding:
    """Count locks. The kernel releases those of dead processes, so their files do not block anything."""
    spawns = places.spawns_dir()
    owners = [*(each.folder for each in root.campaigns()), *_folders(scratch_of_runs()), *_folders(spawns)]
    there = [folder for folder in (*owners, root.folder / REMOVED) if os.path.lexists(folder / LOCK)]
    held = [str(folder) for folder in there if is_locked(folder)]
    dead = len(there) - len(held)
    what = f"{len(held)} held, {dead} left by dead processes (harmless)" if there else "none"
    return DoctorFinding(name="locks", status="ok", what=what, facts={"held": held, "dead": dead})


def _folders(place: Path) -> list[Path]:
    return sorted(each for each in place.iterdir() if each.is_dir()) if place.is_dir() else []


def _retention(root: RootPaths, config: Config) -> DoctorFinding:
    settings = config.retention
    rule = RetentionRule(
        older_than_s=None if settings.older_than is None else parse_age_s(settings.older_than),
        larger_than_bytes=None if settings.larger_than is None else parse_size_bytes(settings.larger_than),
    )
    plan = plan_clearing(root, rule, now_ms=SYSTEM_CLOCK.wall_ms())
    due = [unit for unit in plan.units if unit.is_deleted]
    facts = {"dueBytes": plan.freed_bytes, "keptBytes": plan.kept_bytes, "due": [unit.name for unit in due]}
    kept = f"{(plan.kept_bytes + plan.freed_bytes) / 1e6:,.1f} MB of evidence and kept scratch"
    if (root.folder / REMOVED).exists():
        what = f"{kept}; an earlier `proctor gc` was interrupted"
        return DoctorFinding(
            name="retention", status="warn", what=what, todo="proctor gc --older-than 30d", facts=facts
        )
    if not due:
        note = "" if settings.older_than or settings.larger_than else "; no [retention] configured, so nothing is due"
        return DoctorFinding(name="retention", status="ok", what=f"{kept}{note}", facts=facts)
    what = f"{kept}, {plan.freed_bytes / 1e6:,.1f} MB of it due for deletion"
    return DoctorFinding(name="retention", status="warn", what=what, todo="proctor gc --dry-run", facts=facts)


def _prices(folder: Path) -> Iterator[DoctorFinding]:
    """Check the age of the price file that the spec in this folder names, if there is one."""
    try:
        named = decode_bytes(read_source(folder / SPEC), CampaignSpec, file=SPEC).value.prices
        if named is None:
            return
        prices = decode_prices(read_source(folder / named), file=named)
    except InputError:
        return  # `campaign lint` and `run` report errors in the spec
    days = (datetime.now(tz=UTC).date() - prices.since).days
    is_old = days > _OLD_PRICES_DAYS
    yield DoctorFinding(
        name="prices",
        status="warn" if is_old else "ok",
        what=f"{folder / named} is {days} days old",
        todo="Check that the prices are still those of the providers." if is_old else None,
        facts={"file": str(folder / named), "ageDays": days},
    )
