"""Parse from Codex's error texts when to retry: after a duration, or at a local time of day. Pure."""

import re
from math import ceil
from typing import Final

from proctor.event.row import FactsLearned, SupervisorRow

UTC_OFFSET: Final = "utcOffsetMinutes"
"""The fact that is needed to interpret a time of day."""

_MINUTE_MS = 60_000
_DAY_MINUTES = 24 * 60
# Durations in the provider's text, which Codex passes on: "11.054s", "28ms", "6m0s", "1h2m3s".
_IN = re.compile(r"try again in (?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,6}(?:\.\d{1,6})?)(ms|s))?", re.IGNORECASE)
_AT = re.compile(
    r"[Tt]ry again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th), (\d{4}) )?(\d{1,2}):(\d\d) ([AP]M)", re.ASCII
)
_MONTHS = {name: n for n, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), start=1)}


def utc_offset_in(seen: SupervisorRow | None, *, known: int | None) -> int | None:
    """Return the UTC offset that a supervisor row states, or else `known`."""
    fact = seen.facts.get(UTC_OFFSET) if isinstance(seen, FactsLearned) else None
    return fact.value if fact is not None and isinstance(fact.value, int) else known


def retry_after_ms(text: str, *, at_ms: int, utc_offset_minutes: int | None) -> int | None:
    """Return how many milliseconds after `at_ms` to retry according to the text. None if it does not say.

    >>> retry_after_ms("Please try again in 1.5s. Visit", at_ms=0, utc_offset_minutes=None)
    1500
    >>> retry_after_ms("or try again at Jan 1st, 1970 2:05 AM.", at_ms=0, utc_offset_minutes=60)
    3960000
    """
    if (found := _IN.search(text)) is not None and any(found.groups()):
        hours, minutes, rest, unit = found.groups()
        whole_ms = (int(hours or 0) * 60 + int(minutes or 0)) * _MINUTE_MS
        return whole_ms + ceil(float(rest or 0) * (1 if unit == "ms" else 1000))
    if utc_offset_minutes is None or (found := _AT.search(text)) is None:
        return None
    month, day, year, hour, minute, half = found.groups()
    if month is None:
        today = (at_ms // _MINUTE_MS + utc_offset_minutes) // _DAY_MINUTES
    elif month in _MONTHS:
        today = _days(int(year), _MONTHS[month], int(day))
    else:
        return None
    local = today * _DAY_MINUTES + (int(hour) % 12 + 12 * (half == "PM")) * 60 + int(minute)
    # The text has no seconds, so wait for the next full minute.
    wait_ms = (local + 1 - utc_offset_minutes) * _MINUTE_MS - at_ms
    # A time in the past means that the zone is not the assumed one.
    return wait_ms if wait_ms >= 0 else None


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01. Computed with years that begin in March."""
    year -= month <= 2
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 719_469
