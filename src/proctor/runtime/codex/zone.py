"""The time zone in which a Codex process prints times of day."""

from collections.abc import Mapping
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from proctor.clock import Clock
from proctor.fact import UNKNOWN, Authority, Fact


def utc_offset(env: Mapping[str, str], *, clock: Clock) -> Fact:
    """Return the current UTC offset in minutes, of TZ in the environment or else of this machine."""
    now = datetime.fromtimestamp(clock.wall_ms() / 1000, tz=UTC)
    name = env.get("TZ")
    try:
        offset = now.astimezone(ZoneInfo(name) if name else None).utcoffset()
    except (ValueError, OSError, KeyError):  # KeyError: an unknown zone
        return UNKNOWN
    if offset is None:
        return UNKNOWN
    source = "TZ in the environment of the process" if name else "this machine's zone"
    return Fact(value=int(offset.total_seconds()) // 60, authority=Authority.INFERRED, source=source)
