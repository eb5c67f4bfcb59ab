"""What ends the id of a campaign and is that of a run: when it began."""

import secrets as chance
from datetime import UTC, datetime

from proctor.clock import Clock


def stamp(clock: Clock) -> str:
    """Sorts by time, and two in one second differ."""
    at = datetime.fromtimestamp(clock.wall_ms() / 1000, tz=UTC)
    return f"{at:%Y%m%d-%H%M%S}-{chance.token_hex(3)}"
