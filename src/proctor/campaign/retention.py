"""What goes and what stays, by age and then by size: the oldest first, and never what has a reason to stay. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["campaign", "run", "session", "scratch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GcUnit:
    """What goes together or not at all. `stays` is why it must not go, where there is a reason."""

    kind: Kind
    name: str
    folders: tuple[str, ...]
    touched_at_ms: int
    size_bytes: int
    stays: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """What may be kept. A limit that is None is none; nought is one."""

    older_than_s: int | None
    larger_than_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDecision:
    """What becomes of a unit, and why."""

    unit: GcUnit
    goes: bool
    why: str


def decide(units: Iterable[GcUnit], rule: RetentionRule, *, now_ms: int) -> tuple[RetentionDecision, ...]:
    """The oldest first.

    What is too old goes; then, while there is too much, the oldest of what is left.
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
            whys[at] = "the oldest of too much"
            total_bytes -= unit.size_bytes
    return tuple(
        RetentionDecision(unit=unit, goes=at in whys, why=whys.get(at) or unit.stays or "within what may be kept")
        for at, unit in enumerate(ordered)
    )
