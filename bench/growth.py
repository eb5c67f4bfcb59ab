"""Whether the attempts of a campaign cost more, the more there were before, on a machine now fast and now slow."""

import time
from collections.abc import Sequence
from statistics import median

import msgspec

PARTS = 10
_LOOKS = 25
"""How often in a part it is looked how fast the machine is."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """By what factor an attempt of the last parts cost more than one of the first, in work that is always the same.

    `plain` is by the processor's time alone, in which a machine that slows down looks like a cost that grows.
    """

    measured: float
    plain: float


class GrowthMeter:
    """Of a campaign with so many attempts; told of each that has ended."""

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
    """The first part warms up: it is left out where there are enough others."""
    share = max(1, len(parts) // 3)
    first = parts[1 : 1 + share] if len(parts) > share * 2 else parts[:share]
    return median(parts[-share:]) / median(first)


def _fixed_work_s() -> float:
    """What this thread takes for the same few milliseconds of work: rows made, spelled and read, as an attempt does."""
    began_s = time.thread_time()
    for number in range(100):
        rows = [{"seq": at, "name": f"{number}.{at}", "said": ["so", "it", "is"]} for at in range(40)]
        told = msgspec.json.decode(msgspec.json.encode(rows))
        sorted(told, key=lambda row: str(row["name"]))
    return time.thread_time() - began_s
