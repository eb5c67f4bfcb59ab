"""Time that passes over several processes, and over restarts of the machine. Pure: the caller reads the clocks."""

import itertools
from collections.abc import Sequence

import msgspec


class Moment(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A reading of the clocks."""

    boot: str
    """The kernel's id of the time since the machine was started."""
    since_boot_ms: int
    """Milliseconds since the machine was started, including those that it slept. Never goes back."""
    wall_ms: int
    """Wall-clock time, in milliseconds since the epoch. Anyone may set it."""


def passed_ms(before: Moment, now: Moment) -> int:
    """Return how long ago `before` was.

    While the machine runs or sleeps, setting its clock changes nothing. After a restart only the wall clock is left,
    and the time since the restart has passed in any case.

    >>> start = Moment(boot="a", since_boot_ms=1_000, wall_ms=50_000)
    >>> passed_ms(start, Moment(boot="a", since_boot_ms=1_700, wall_ms=3))
    700
    >>> passed_ms(start, Moment(boot="b", since_boot_ms=200, wall_ms=59_000))
    9000
    >>> passed_ms(start, Moment(boot="b", since_boot_ms=200, wall_ms=3))
    200
    """
    if before.boot == now.boot:
        return max(0, now.since_boot_ms - before.since_boot_ms)
    return max(now.since_boot_ms, now.wall_ms - before.wall_ms)


def total_ms(moments: Sequence[Moment]) -> int:
    """Return how long it is from the first of these moments to the last. They are in the order of their recording."""
    return sum(passed_ms(before, now) for before, now in itertools.pairwise(moments))
