"""Time stamps that serve as run ids and end the ids of campaigns."""

import secrets as chance
from datetime import UTC, datetime

from proctor.clock import Clock


def stamp(clock: Clock) -> str:
    """Return a stamp that sorts by time. A random suffix keeps two of the same second apart."""
    at = datetime.fromtimestamp(clock.wall_ms() / 1000, tz=UTC)
    return f"{at:%Y%m%d-%H%M%S}-{chance.token_hex(3)}"
