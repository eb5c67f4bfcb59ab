"""The clocks and the other limits of an attempt, and the loop that enforces them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import anyio

from proctor.clock import Clock
from proctor.errors import ProctorError
from proctor.event.model import Event, SessionBegan, TurnBegan, UsageReported
from proctor.event.row import FailureFound, StepTaken
from proctor.event.usage import UsageFold

ClockName = Literal["stall", "turn", "attempt", "mission", "campaign"]

TICK_S = 0.25
"""Interval at which the clocks are checked, in seconds."""
LAG_S = 0.5
"""A tick that is late by more than this, in seconds, means that Proctor itself did not run and could not listen."""
PAUSE_S = 5.0
"""A time of not running that is longer than this, in seconds, is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockExpiry:
    """A clock that expired, or a requested stop."""

    clock: ClockName | None
    """Name of the clock. None if a stop was requested."""
    limit_ms: int = 0
    """Limit of the clock, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitExceeded:
    """A limit other than time was exceeded."""

    limit: Literal["tokens", "evidence"]
    """Which limit: tokens of all turns, or bytes of evidence."""
    most: int
    """The limit."""
    used: int
    """The value reached."""


Stop: TypeAlias = ClockExpiry | LimitExceeded | FailureFound | ProctorError
"""Why work under the clocks is stopped."""


class Watch:
    """The clocks of one attempt. Pure: the caller passes the time, in seconds of a monotonic clock.

    - `attempt` counts from the start.
    - `turn` counts from the start of the current turn, and only during a turn.
    - `stall` counts from the last sign of life of the agent.
    - `left`, if given, is the name and the remaining milliseconds of a clock over more than this attempt (`mission` or
      `campaign`). It counts from the start.

    The first three stop during a hold, while Proctor waits for a person, a tool or a hook. `left` does not.
    """

    def __init__(
        self,
        *,
        now_s: float,
        attempt_ms: int,
        turn_ms: int,
        stall_ms: int,
        left: tuple[ClockName, int] | None = None,
        tokens: int | None = None,
        tokens_before: int = 0,
        evidence_bytes: int | None = None,
    ) -> None:
        """`tokens` is the limit; `tokens_before` were used by the attempts that this one continues."""
        self._limits_ms: dict[ClockName, int] = {"attempt": attempt_ms, "turn": turn_ms, "stall": stall_ms}
        self._left = left
        self._began_s = now_s
        self._most_tokens = tokens
        self._tokens = self._tokens_before = tokens_before
        self._most_bytes = evidence_bytes
        self._bytes = 0
        self._usage = UsageFold()
        self._attempt_began_s = now_s
        self._turn_began_s: float | None = None
        self._heard_s = now_s
        self._holds = 0
        self._hold_began_s = now_s

    @property
    def is_in_turn(self) -> bool:
        return self._turn_began_s is not None

    def turn_began(self, now_s: float) -> None:
        """Start the turn clock and restart the stall clock."""
        self._turn_began_s = now_s
        self._heard_s = max(self._heard_s, now_s)

    def turn_ended(self) -> None:
        """Stop the turn clock."""
        self._turn_began_s = None

    def heard(self, at_s: float) -> None:
        """Restart the stall clock at the time of a sign of life. An earlier time than the last has no effect."""
        self._heard_s = max(self._heard_s, at_s)

    def event_recorded(self, event: Event) -> None:
        """Count the tokens of all turns together, those of continued attempts included, if there is a limit."""
        if self._most_tokens is not None and isinstance(event, SessionBegan | TurnBegan | UsageReported):
            self._usage.feed(event)
            tokens = self._usage.tokens
            self._tokens = self._tokens_before + (0 if tokens is None else tokens.total)

    def evidence_grew(self, size_bytes: int) -> None:
        """Set the size of the evidence recorded so far."""
        self._bytes = size_bytes

    def lift_limits(self) -> None:
        """Drop the limits of tokens and evidence: the agent has stopped, and only the judging is left.

        >>> watch = Watch(now_s=0, attempt_ms=9000, turn_ms=5000, stall_ms=8000, evidence_bytes=9)
        >>> watch.evidence_grew(10); watch.lift_limits(); watch.expired(1)
        """
        self._most_tokens = self._most_bytes = None

    def discount_lag(self, lag_s: float) -> None:
        """Move every clock forward by the time for which Proctor did not run: it is not the agent's.

        >>> watch = Watch(now_s=0, attempt_ms=9000, turn_ms=5000, stall_ms=8000)
        >>> watch.discount_lag(60); watch.expired(67.9), watch.expired(68).clock
        (None, 'stall')
        """
        self._began_s += lag_s
        self._attempt_began_s += lag_s
        self._heard_s += lag_s
        self._hold_began_s += lag_s
        if self._turn_began_s is not None:
            self._turn_began_s += lag_s

    def hold(self, now_s: float) -> None:
        """Stop the attempt, turn and stall clocks. Holds nest, and each needs a `release`."""
        if not self._holds:
            self._hold_began_s = now_s
        self._holds += 1

    def release(self, now_s: float) -> None:
        """End a hold. After the last one, the attempt and turn clocks continue and the stall clock restarts.

        >>> watch = Watch(now_s=0, attempt_ms=9000, turn_ms=5000, stall_ms=2000)
        >>> watch.hold(1); watch.expired(100); watch.release(100); watch.expired(101.9), watch.expired(102).clock
        (None, 'stall')
        """
        self._holds -= 1
        if not self._holds:
            held_s = now_s - self._hold_began_s
            self._attempt_began_s += held_s
            if self._turn_began_s is not None:
                self._turn_began_s += held_s
            self._heard_s = now_s

    def expired(self, now_s: float) -> ClockExpiry | LimitExceeded | None:
        """Return the limit that is reached; None if none is.

        The limits of tokens and evidence come first. Of several expired clocks, `attempt` or `left` (the one that
        expired earlier) comes before `turn`, and `turn` before `stall`.

        >>> watch = Watch(now_s=0, attempt_ms=9000, turn_ms=5000, stall_ms=2000)
        >>> watch.expired(1.9), watch.expired(2.0)
        (None, ClockExpiry(clock='stall', limit_ms=2000))
        """
        if self._most_tokens is not None and self._tokens > self._most_tokens:
            return LimitExceeded(limit="tokens", most=self._most_tokens, used=self._tokens)
        if self._most_bytes is not None and self._bytes > self._most_bytes:
            return LimitExceeded(limit="evidence", most=self._most_bytes, used=self._bytes)
        running: list[tuple[ClockName, float, int]] = []
        if self._left is not None:
            running.append((self._left[0], self._began_s, self._left[1]))
        if not self._holds:
            running.insert(0, ("attempt", self._attempt_began_s, self._limits_ms["attempt"]))
            # Of these two, the one that expired first is reported, however late the check is.
            running.sort(key=lambda each: each[1] + each[2] / 1000)
            if self._turn_began_s is not None:
                running.append(("turn", self._turn_began_s, self._limits_ms["turn"]))
            running.append(("stall", self._heard_s, self._limits_ms["stall"]))
        for clock, began_s, limit_ms in running:
            if (now_s - began_s) * 1000 >= limit_ms:
                return ClockExpiry(clock=clock, limit_ms=limit_ms)
        return None


def pause_row(lag_s: float) -> StepTaken:
    """Return the row that records for how long Proctor did not run."""
    return StepTaken(step="proctor did not run", detail={"ms": round(lag_s * 1000)})


async def under_watch(
    work: Callable[[], Awaitable[None]],
    watch: Watch,
    *,
    clock: Clock,
    heard_s: Callable[[], float],
    evidence_bytes: Callable[[], int],
    failure: Callable[[], FailureFound | ProctorError | None],
    stop: anyio.Event,
    on_stop: Callable[[Stop], None],
    on_pause: Callable[[float], None],
) -> None:
    """Run `work` until it returns, raises a ProctorError, or is cancelled by one of these, checked in this order:

    1. `stop` is set.
    2. `failure()` returns an error, because the record cannot be written any more, or a failure that it found.
    3. The limit of tokens or evidence is exceeded, or a clock expired.

    Unless the work simply returns, `on_stop` is called once with the cause, before the work is cancelled. So the cause
    is on record before anything that the work's clean-up records. `heard_s()` returns the time of the agent's last sign
    of life, in seconds of the monotonic clock, and `evidence_bytes()` the size of the evidence. `on_pause` is called
    with the seconds for which Proctor did not run, because it was stopped (SIGSTOP) or the machine gave it no time, if
    more than PAUSE_S. No clock counts them.
    """
    is_over = False
    async with anyio.create_task_group() as tasks:

        def end(cause: Stop | None) -> None:
            nonlocal is_over
            if cause is not None and not is_over:
                on_stop(cause)
            is_over = True
            tasks.cancel_scope.cancel()

        async def tick() -> None:
            cause: Stop | None = None
            while cause is None:
                before_s = clock.steady_s()
                with anyio.move_on_after(TICK_S):
                    await stop.wait()
                now_s = clock.steady_s()
                lag_s = now_s - before_s - TICK_S
                if lag_s > LAG_S:
                    watch.discount_lag(lag_s)
                if lag_s > PAUSE_S:
                    on_pause(lag_s)
                watch.heard(heard_s())
                watch.evidence_grew(evidence_bytes())
                cause = ClockExpiry(clock=None) if stop.is_set() else failure() or watch.expired(now_s)
            end(cause)

        tasks.start_soon(tick)
        try:
            await work()
            end(None)
        except ProctorError as error:
            end(error)
