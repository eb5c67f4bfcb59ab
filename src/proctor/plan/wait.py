"""A wait before a retry, and when it ends. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The time from the end of an attempt until a retry can succeed, in milliseconds since the epoch."""

    since_ms: int
    until_ms: int

    def ends_at_ms(self, now_ms: int, *, longest_ms: int) -> int | None:
        """Return when the wait ends; None if it is over, or if it is longer than `longest_ms`.

        If the clock was set back, the wait still lasts no longer than originally.

        >>> wait = Wait(since_ms=100, until_ms=160)
        >>> [wait.ends_at_ms(now, longest_ms=60) for now in (100, 130, 160, 20)]
        [160, 160, None, 80]
        >>> wait.ends_at_ms(130, longest_ms=59)
        """
        duration_ms = self.until_ms - self.since_ms
        if self.until_ms <= now_ms or not 0 < duration_ms <= longest_ms:
            return None
        return min(self.until_ms, now_ms + duration_ms)
