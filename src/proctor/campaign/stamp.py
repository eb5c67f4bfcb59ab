"""Time stamps that serve as run ids and end the ids of campaigns."""

import secrets as chance
from datetime import UTC, datetime

from proctor.clock import Clock


def stamp(clock: Clock) -> str:
    """Return a stamp that sorts by time, to the millisecond. Random digits at its end keep two of them apart."""
    wall_ms = clock.wall_ms()
    at = datetime.fromtimestamp(wall_ms / 1000, tz=UTC)
    return f"{at:%Y%m%d-%H%M%S}-{wall_ms % 1000:03x}{chance.randbelow(16**3):03x}"
