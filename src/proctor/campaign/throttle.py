"""How many attempts one key admits: the configured number, fewer after a refusal, none while it is shut. Pure."""

from dataclasses import dataclass
from hashlib import blake2b

LONGEST_PAUSE_S = 300.0
# A quota's window lasts minutes to days, so it is tried less often if the provider does not say when it reopens.
LONGEST_PARK_S = 1800.0
PARK_FACTOR = 30


def growing_pause_s(first_s: float, n: int, *, longest_s: float, seed: int, who: str) -> float:
    """Return the pause after `n` others. It doubles each time, plus up to half as much of reproducible jitter.

    >>> [round(growing_pause_s(2, n, longest_s=60, seed=1, who="a"), 1) for n in (0, 1, 2, 9)]
    [2.4, 4.8, 11.9, 60]
    """
    drawn = blake2b(f"{seed}:{who}:{n}".encode(), digest_size=8).digest()
    chance = int.from_bytes(drawn) / 2**64
    # Beyond 2**40 any pause is the longest one.
    return min(longest_s, first_s * 2.0 ** min(n, 40) * (1 + chance / 2))


def longest_pause_s(longest_wait_s: float) -> float:
    """Return the longest single wait: for a quota's window, or before a retry."""
    return max(longest_wait_s, LONGEST_PAUSE_S)


@dataclass(slots=True, kw_only=True)
class Throttle:
    """The limit of one key. Each served attempt raises it a little, each refusal halves it.

    An attempt that began before the last decrease reflects the time before it, so it changes nothing.
    """

    key: str
    most: int
    backoff_s: float
    longest_wait_s: float
    seed: int
    taken: int = 0  # places in use
    unheard: int = 0  # started attempts whose end was not processed yet, including those that have left their place
    shut_until_s: float = 0.0
    why: str | None = None  # the code of the last refusal, until the limit is back at its configured value
    is_given_up: bool = False
    _level: float | None = None
    _shrunk_at: int = 0
    _waited_s: float = 0.0  # since the last served attempt
    _pauses: int = 0

    @property
    def now(self) -> float:
        """How many attempts it admits while it is not shut."""
        if self.is_given_up:
            return 0
        return self.most if self._level is None else int(self._level)

    @property
    def has_place(self) -> bool:
        return self.taken < self.now

    def served(self, *, start: int) -> None:
        """Raise the limit: the attempt with start number `start` got a result."""
        if start <= self._shrunk_at or self._level is None:
            return
        self._waited_s, self._pauses = 0.0, 0
        self._level += 1 / self._level
        if self._level >= self.most:
            self._level = self.why = None

    def refused(
        self, *, start: int, starts: int, now_s: float, retry_after_s: float | None, is_quota: bool, why: str
    ) -> None:
        """Lower the limit and shut the key: attempt `start` of `starts` so far was refused.

        `retry_after_s` is the pause that the provider asked for, if it did.
        """
        is_news = start > self._shrunk_at
        if not is_news and retry_after_s is None:
            return
        requested_s = retry_after_s or 0.0
        # Attempts that ran at the same time are refused for the same wait, which is counted once.
        patience_s = self.longest_wait_s - (self._waited_s if is_news else 0.0)
        if patience_s <= 0 or requested_s > patience_s:
            self.is_given_up = True
        pause_s = min(self._pause_s(retry_after_s, is_news=is_news, is_quota=is_quota), max(patience_s, requested_s))
        shut_s = max(self.shut_until_s, now_s)
        self.shut_until_s = max(shut_s, now_s + pause_s)
        self._waited_s += self.shut_until_s - shut_s
        self.why = why
        if is_news:
            # At most what it admitted: attempts that have left their place are not running any more.
            in_flight = min(self.unheard, self.now)
            self._level = 1 if is_quota else max(1, in_flight // 2)
            self._shrunk_at = starts
            self._pauses += 1

    def _pause_s(self, retry_after_s: float | None, *, is_news: bool, is_quota: bool) -> float:
        if retry_after_s is None:
            first_s, longest_s = self.backoff_s, LONGEST_PAUSE_S
            if is_quota:
                first_s, longest_s = first_s * PARK_FACTOR, LONGEST_PARK_S
            return growing_pause_s(first_s, self._pauses, longest_s=longest_s, seed=self.seed, who=self.key)
        if not is_news or self._pauses == 0:
            return retry_after_s
        # After a refusal at the time the provider itself named, wait longer: a "0" would be retried forever.
        least_s = growing_pause_s(
            self.backoff_s, self._pauses - 1, longest_s=LONGEST_PAUSE_S, seed=self.seed, who=self.key
        )
        return max(retry_after_s, least_s)
