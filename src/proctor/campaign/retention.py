"""Decides what to delete, first by age and then by size, the oldest first; never what has a reason to stay. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["campaign", "run", "scratch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GcUnit:
    """Folders that are deleted together or not at all."""

    kind: Kind
    name: str
    folders: tuple[str, ...]
    touched_at_ms: int
    size_bytes: int
    stays: str | None = None
    """Why it must not be deleted; None if it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """Limits on what is kept. None means no limit; 0 is a limit."""

    older_than_s: int | None
    larger_than_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDecision:
    """Whether a unit is deleted, and why."""

    unit: GcUnit
    is_deleted: bool
    why: str


def decide(units: Iterable[GcUnit], rule: RetentionRule, *, now_ms: int) -> tuple[RetentionDecision, ...]:
    """Decide for each unit whether it is deleted. The decisions are ordered by age, the oldest first.

    Units that are too old are deleted; then, while the total is too large, the oldest of the rest.
    """
    ordered = sorted(units, key=lambda unit: (unit.touched_at_ms, unit.name))
    total_bytes = sum(unit.size_bytes for unit in ordered)
    whys: dict[int, str] = {}
    for at, unit in enumerate(ordered):
        is_old = rule.older_than_s is not None and now_ms - unit.touched_at_ms > rule.older_than_s * 1000
        if is_old and unit.stays is None:
            whys[at] = "too old"
            total_bytes -= unit.size_bytes
    for at, unit in enumerate(ordered):
        if rule.larger_than_bytes is None or total_bytes <= rule.larger_than_bytes:
            break
        if at not in whys and unit.stays is None:
            whys[at] = "total size over the limit"
            total_bytes -= unit.size_bytes
    return tuple(
        RetentionDecision(unit=unit, is_deleted=at in whys, why=whys.get(at) or unit.stays or "within the limits")
        for at, unit in enumerate(ordered)
    )
