"""The zone that a Codex process tells times of day in."""

from collections.abc import Mapping
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from proctor.clock import Clock
from proctor.fact import UNKNOWN, Authority, Fact


def utc_offset(env: Mapping[str, str], *, clock: Clock) -> Fact:
    """In minutes, now: of the zone its environment names, or else of this machine's."""
    now = datetime.fromtimestamp(clock.wall_ms() / 1000, tz=UTC)
    name = env.get("TZ")
    try:
        offset = now.astimezone(ZoneInfo(name) if name else None).utcoffset()
    except (ValueError, OSError, KeyError):  # the last is what a zone that is not known raises
        return UNKNOWN
    if offset is None:
        return UNKNOWN
    source = "TZ of its environment" if name else "this machine's zone"
    return Fact(value=int(offset.total_seconds()) // 60, authority=Authority.INFERRED, source=source)
