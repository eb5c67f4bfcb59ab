"""How long and how much is kept, as users write it."""

import re
from typing import Final

from proctor.spec.struct import Spec

_AGE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(s|m|h|d|w)")
_AGE_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:([kKMGT])(i?))?B")
_POWER: Final = {None: 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_age_s(written: str) -> int:
    """As durations of a spec are written, but with days and weeks, and never without a unit.

    >>> [parse_age_s(written) for written in ("90s", "2m", "12 h", "1.5h", "30d", "4w")]
    [90, 120, 43200, 5400, 2592000, 2419200]
    >>> parse_age_s("a while")
    Traceback (most recent call last):
    ValueError: not an age: write it like 90s, 12h, 30d or 4w
    """
    found = _AGE.fullmatch(written.strip())
    if found is None:
        raise ValueError("not an age: write it like 90s, 12h, 30d or 4w")
    return round(float(found[1]) * _AGE_S[found[2]])


def parse_size_bytes(written: str) -> int:
    """
    >>> parse_size_bytes("5GB"), parse_size_bytes("1.5 GiB"), parse_size_bytes("0B")
    (5000000000, 1610612736, 0)
    >>> parse_size_bytes("much")
    Traceback (most recent call last):
    ValueError: not a size: write it like 5GB, 500MB or 2GiB
    """
    found = _SIZE.fullmatch(written.strip())
    if found is None:
        raise ValueError("not a size: write it like 5GB, 500MB or 2GiB")
    scale: int = (1024 if found[3] else 1000) ** _POWER[found[2]]
    return round(float(found[1]) * scale)


class RetentionSettings(Spec, frozen=True, kw_only=True):
    """`[retention]`: what `gc` goes by where it is told nothing else. Nothing is ever removed without it."""

    older_than: str | None = None
    larger_than: str | None = None

    def __post_init__(self) -> None:
        if self.older_than is not None:
            parse_age_s(self.older_than)
        if self.larger_than is not None:
            parse_size_bytes(self.larger_than)
