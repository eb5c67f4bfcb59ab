"""A wait that was begun before somebody asks how much of it is left. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """From the end of an attempt until it is worth while to come back."""

    since_ms: int
    until_ms: int

    def ends_at_ms(self, now_ms: int, *, longest_ms: int) -> int | None:
        """By a clock that may have been set back since: nobody waits longer than it was for. None where it is over,
        and where it is longer than any run waits.

        >>> wait = Wait(since_ms=100, until_ms=160)
        >>> [wait.ends_at_ms(now, longest_ms=60) for now in (100, 130, 160, 20)]
        [160, 160, None, 80]
        >>> wait.ends_at_ms(130, longest_ms=59)
        """
        whole_ms = self.until_ms - self.since_ms
        if self.until_ms <= now_ms or not 0 < whole_ms <= longest_ms:
            return None
        return min(self.until_ms, now_ms + whole_ms)
