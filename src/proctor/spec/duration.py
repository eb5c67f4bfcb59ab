"""Parse the durations of a spec."""

import re
from typing import Final

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)?")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_S: Final = 7 * 24 * 3600.0


def parse_duration_s(duration: str | float) -> float:
    """Return a duration in seconds. Raises ValueError unless it is between 1 ms and one week.

    >>> [parse_duration_s(duration) for duration in ("90s", "2m", "500ms", "1.5", 20)]
    [90.0, 120.0, 0.5, 1.5, 20.0]
    >>> parse_duration_s("soon")
    Traceback (most recent call last):
    ValueError: `soon` is not a duration: write it like 90s, 2m, 500ms or 1h
    """
    match = _DURATION.fullmatch(duration.strip() if isinstance(duration, str) else f"{duration:f}")
    if match is None:
        raise ValueError(f"`{str(duration)[:60]}` is not a duration: write it like 90s, 2m, 500ms or 1h")
    duration_s = float(match[1]) * _UNIT_S[match[2]]
    if not 0.001 <= duration_s <= _LONGEST_S:
        raise ValueError(f"`{str(duration)[:60]}` is out of range: write a duration from 1ms to one week (168h)")
    return duration_s
