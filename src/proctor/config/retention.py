"""The retention settings, and the parser of ages."""

import re
from typing import Final

from proctor.spec.size import parse_size_bytes
from proctor.spec.struct import Spec

_AGE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(s|m|h|d|w)")
_AGE_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def parse_age_s(age: str) -> int:
    """Parse an age with a unit (s, m, h, d or w). Returns seconds. Raises ValueError if it is invalid.

    >>> [parse_age_s(age) for age in ("90s", "2m", "12 h", "1.5h", "30d", "4w")]
    [90, 120, 43200, 5400, 2592000, 2419200]
    >>> parse_age_s("a while")
    Traceback (most recent call last):
    ValueError: `a while` is not an age: write it like 90s, 12h, 30d or 4w
    """
    match = _AGE.fullmatch(age.strip())
    if match is None:
        raise ValueError(f"`{age}` is not an age: write it like 90s, 12h, 30d or 4w")
    return round(float(match[1]) * _AGE_S[match[2]])


class RetentionSettings(Spec, frozen=True, kw_only=True):
    """`[retention]`: the defaults of `proctor gc`. Nothing is deleted unless the user runs that command."""

    older_than: str | None = None
    """Age above which evidence is deleted, such as `30d`. Default: no limit."""

    larger_than: str | None = None
    """Total size above which the oldest evidence is deleted, such as `5GB`. Default: no limit."""

    def __post_init__(self) -> None:
        if self.older_than is not None:
            parse_age_s(self.older_than)
        if self.larger_than is not None:
            parse_size_bytes(self.larger_than)
