"""How long a spec says something may take."""

import re
from typing import Final

_WRITTEN = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)?")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_S: Final = 7 * 24 * 3600.0


def parse_duration_s(written: str | float) -> float:
    """Seconds, from a millisecond to a week.

    >>> [parse_duration_s(written) for written in ("90s", "2m", "500ms", "1.5", 20)]
    [90.0, 120.0, 0.5, 1.5, 20.0]
    >>> parse_duration_s("soon")
    Traceback (most recent call last):
    ValueError: not a duration: write it like 90s, 2m, 500ms or 1h
    """
    found = _WRITTEN.fullmatch(written.strip() if isinstance(written, str) else f"{written:f}")
    if found is None:
        raise ValueError("not a duration: write it like 90s, 2m, 500ms or 1h")
    duration_s = float(found[1]) * _UNIT_S[found[2]]
    if not 0.001 <= duration_s <= _LONGEST_S:
        raise ValueError(f"a duration is at least 1ms and at most a week (168h), found {written}")
    return duration_s
