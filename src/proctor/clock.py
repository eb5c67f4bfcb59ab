"""Access to wall-clock and monotonic time; no other module reads a clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock time for records and of monotonic time for deadlines."""

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        ...

    def steady_s(self) -> float:
        """Return seconds of a clock that never goes back."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK: Clock = SystemClock()
