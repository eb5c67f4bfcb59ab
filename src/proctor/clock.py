"""The only place that asks what time it is."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, steady time for deadlines."""

    def wall_ms(self) -> int: ...

    def steady_s(self) -> float: ...


class SystemClock:
    """This machine's own clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK: Clock = SystemClock()
