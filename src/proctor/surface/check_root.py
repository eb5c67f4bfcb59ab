"""What the doctor says of an evidence root: campaigns that stand still, locks, what is due to go, the age of prices."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from proctor import places
from proctor.campaign.retention import RetentionRule
from proctor.campaign.scratch import is_locked, scratch_of_runs
from proctor.clock import SYSTEM_CLOCK
from proctor.config.model import Config
from proctor.config.retention import parse_age_s, parse_size_bytes
from proctor.contain.intent import LOCK
from proctor.errors import EvidenceError, InputError
from proctor.evidence.layout import RootPaths
from proctor.report.format_values import plural
from proctor.report.query import campaigns_by_age
from proctor.spec.model import CampaignSpec
from proctor.spec.prices import decode_prices
from proctor.spec.source_file import decode_bytes, read_source
from proctor.surface.campaign_status import status_of
from proctor.surface.finding import DoctorFinding, look
from proctor.surface.gc import REMOVED, plan_clearing
from proctor.surface.init import SPEC

_MOST_NAMES = 5
_OLD_PRICES_DAYS = 90


def check_order(root: RootPaths, config: Config) -> Iterator[DoctorFinding]:
    """In the order in which one would put it in order."""
    yield from look("campaigns", _campaigns, root)
    yield from look("locks", _locks, root)
    yield from look("retention", _retention, root, config)
    yield from look("prices", _prices, Path.cwd())


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
            standing = status_of(campaign)
        except EvidenceError as error:
            # One that was killed while it was being made has nothing that could be damaged.
            (unmade if error.code == "evidence.partial" else damaged).append(campaign.folder.name)
            continue
        if standing.is_live:
            running.append(campaign.folder.name)
        elif standing.left.total and standing.kind == "campaign":
            left.append(campaign.folder.name)
            resumable += [campaign.folder.name] if standing.can_resume else []
    counts = ((running, "running"), (left, "not done"), (unmade, "cut off before anything ran"))
    told = [f"{len(names)} {word}" for names, word in counts if names]
    facts = {"running": running, "notDone": left, "unmade": unmade, "damaged": damaged}
    if damaged:
        what = f"the ledger of {plural(len(damaged), 'campaign')} cannot be read"
        todo = f"proctor validate {damaged[0]}"
        return DoctorFinding(name="campaigns", status="fail", what=what, more=tuple(damaged), todo=todo, facts=facts)
    return DoctorFinding(
        name="campaigns",
        status="warn" if left else "ok",
        what=", ".join([plural(number, "campaign"), *told]),
        more=tuple(f"not done: {name}" for name in left[:_MOST_NAMES]),
        todo=f"proctor campaign resume {resumable[0]}" if resumable else None,
        facts=facts,
    )


def _locks(root: RootPaths) -> DoctorFinding:
    """The kernel drops a dead owner's, so that the file it leaves blocks nobody."""
    spawns = places.state_dir() / "spawns"
    owners = [*(each.folder for each in root.campaigns()), *_folders(scratch_of_runs()), *_folders(spawns)]
    there = [folder for folder in (*owners, root.folder / REMOVED) if os.path.lexists(folder / LOCK)]
    held = [str(folder) for folder in there if is_locked(folder)]
    dead = len(there) - len(held)
    what = f"{len(held)} held, {dead} of dead owners, which block nobody" if there else "none"
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
    due = [unit for unit in plan.units if unit.goes]
    facts = {"dueBytes": plan.freed_bytes, "keptBytes": plan.kept_bytes, "due": [unit.name for unit in due]}
    kept = f"{(plan.kept_bytes + plan.freed_bytes) / 1e6:,.1f} MB of evidence and kept scratch"
    if (root.folder / REMOVED).exists():
        what = f"{kept}; a `proctor gc` was killed before its end"
        return DoctorFinding(
            name="retention", status="warn", what=what, todo="proctor gc --older-than 30d", facts=facts
        )
    if not due:
        none = "" if settings.older_than or settings.larger_than else "; no [retention], so that nothing is due"
        return DoctorFinding(name="retention", status="ok", what=f"{kept}{none}", facts=facts)
    what = f"{kept}, {plan.freed_bytes / 1e6:,.1f} MB of it due to go"
    return DoctorFinding(name="retention", status="warn", what=what, todo="proctor gc --dry-run", facts=facts)


def _prices(folder: Path) -> Iterator[DoctorFinding]:
    """Of the spec that lies here, where it names a price file."""
    try:
        named = decode_bytes(read_source(folder / SPEC), CampaignSpec, file=SPEC).value.prices
        if named is None:
            return
        prices = decode_prices(read_source(folder / named), file=named)
    except InputError:
        return  # whoever runs the spec tells what is wrong with it
    days = (datetime.now(tz=UTC).date() - prices.since).days
    is_old = days > _OLD_PRICES_DAYS
    yield DoctorFinding(
        name="prices",
        status="warn" if is_old else "ok",
        what=f"{folder / named} is {days} days old",
        todo="Look whether the providers' prices are still these." if is_old else None,
        facts={"file": str(folder / named), "ageDays": days},
    )
