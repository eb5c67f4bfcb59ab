"""Whether attempts cost more the more came before them, measured on a machine whose speed varies."""

import time
from collections.abc import Sequence
from statistics import median

import msgspec

PARTS = 10
_LOOKS = 25
"""How often the machine's speed is measured in each part."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """By what factor an attempt of the last parts costs more than one of the first, in units of a fixed piece of work.

    `plain` is the factor in CPU time alone, where a machine that slows down looks like a growing cost.
    """

    measured: float
    plain: float


class GrowthMeter:
    """Measures the growth in a campaign with `attempts` attempts. Call `ended` after each."""

    def __init__(self, attempts: int) -> None:
        self._part = max(1, attempts // PARTS)
        self._every = max(1, self._part // _LOOKS)
        self._ended = 0
        self._since_s, self._looked_s = time.process_time(), 0.0
        self._costs: list[float] = []
        self._paces: list[float] = []

    def ended(self) -> None:
        self._ended += 1
        if self._ended % self._every == 0:
            self._looked_s += _fixed_work_s()
        if self._ended % self._part == 0:
            now_s = time.process_time()
            self._costs.append(now_s - self._since_s - self._looked_s)
            self._paces.append(self._looked_s)
            self._since_s, self._looked_s = now_s, 0.0

    def read(self) -> Growth:
        in_work = [cost / pace for cost, pace in zip(self._costs, self._paces, strict=True)]
        return Growth(measured=last_by_first(in_work), plain=last_by_first(self._costs))


def last_by_first(parts: Sequence[float]) -> float:
    """Return the ratio of the last parts to the first. The very first part is a warm-up, left out if possible."""
    share = max(1, len(parts) // 3)
    first = parts[1 : 1 + share] if len(parts) > share * 2 else parts[:share]
    return median(parts[-share:]) / median(first)


def _fixed_work_s() -> float:
    """Return the time for a fixed few milliseconds of work: create, encode and decode rows, as an attempt does."""
    began_s = time.thread_time()
    for number in range(100):
        rows = [{"seq": at, "name": f"{number}.{at}", "said": ["so", "it", "is"]} for at in range(40)]
        decoded = msgspec.json.decode(msgspec.json.encode(rows))
        sorted(decoded, key=lambda row: str(row["name"]))
    return time.thread_time() - began_s
