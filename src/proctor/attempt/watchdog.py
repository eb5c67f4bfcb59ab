"""Three clocks over every attempt: stall, turn, attempt. They count the agent's silence, never our own slowness."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import anyio

from proctor.clock import Clock
from proctor.errors import ProctorError
from proctor.event.model import Event, SessionBegan, TurnBegan, UsageReported
from proctor.event.usage import UsageFold

ClockName = Literal["stall", "turn", "attempt", "mission", "campaign"]

TICK_S = 0.25
# A tick that takes longer than this means that we were not listening, so silence then proves nothing.
LAG_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """The clock that ran out, and its limit; no clock where somebody asked to stop."""

    clock: ClockName | None
    limit_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overspent:
    """More tokens were used than may be."""

    most: int
    used: int


class Watch:
    """Pure: told the time, says what has run out. `pardon` moves the clock that counts silence; all three stand in a
    hold. `left` is what is left of a clock over more than this attempt, which stands for nobody.
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
    ) -> None:
        self._limits_ms: dict[ClockName, int] = {"attempt": attempt_ms, "turn": turn_ms, "stall": stall_ms}
        self._left = left
        self._began_s = now_s
        self._most_tokens = tokens
        self._tokens = 0
        self._usage = UsageFold()
        self._attempt_began_s = now_s
        self._turn_began_s: float | None = None
        self._heard_s = now_s
        self._holds = 0
        self._held_s = now_s

    @property
    def is_in_turn(self) -> bool:
        return self._turn_began_s is not None

    def turn_began(self, now_s: float) -> None:
        self._turn_began_s = now_s
        self._heard_s = max(self._heard_s, now_s)

    def turn_ended(self) -> None:
        self._turn_began_s = None

    def heard(self, at_s: float) -> None:
        self._heard_s = max(self._heard_s, at_s)

    def saw(self, event: Event) -> None:
        """Counts the tokens of all turns together, where there is a limit to them."""
        if self._most_tokens is not None and isinstance(event, SessionBegan | TurnBegan | UsageReported):
            self._usage.feed(event)
            self._tokens = 0 if (tokens := self._usage.tokens) is None else tokens.total

    def pardon(self, lag_s: float) -> None:
        """We were away for so long; the agent may have spoken meanwhile."""
        self._heard_s += lag_s

    def hold(self, now_s: float) -> None:
        """Somebody else is being waited for; whoever holds must let go."""
        if not self._holds:
            self._held_s = now_s
        self._holds += 1

    def let_go(self, now_s: float) -> None:
        """
        >>> watch = Watch(now_s=0, attempt_ms=9000, turn_ms=5000, stall_ms=2000)
        >>> watch.hold(1); watch.fired(100); watch.let_go(100); watch.fired(101.9), watch.fired(102).clock
        (None, 'stall')
        """
        self._holds -= 1
        if not self._holds:
            stood_s = now_s - self._held_s
            self._attempt_began_s += stood_s
            if self._turn_began_s is not None:
                self._turn_began_s += stood_s
            self._heard_s = now_s

    def fired(self, now_s: float) -> Fired | Overspent | None:
        """
        >>> watch = Watch(now_s=0, attempt_ms=9000, turn_ms=5000, stall_ms=2000)
        >>> watch.fired(1.9), watch.fired(2.0)
        (None, Fired(clock='stall', limit_ms=2000))
        """
        if self._most_tokens is not None and self._tokens > self._most_tokens:
            return Overspent(most=self._most_tokens, used=self._tokens)
        running: list[tuple[ClockName, float, int]] = []
        if self._left is not None:
            running.append((self._left[0], self._began_s, self._left[1]))
        if not self._holds:
            running.insert(0, ("attempt", self._attempt_began_s, self._limits_ms["attempt"]))
            # Of these two the one that ran out first, however late we look.
            running.sort(key=lambda each: each[1] + each[2] / 1000)
            if self._turn_began_s is not None:
                running.append(("turn", self._turn_began_s, self._limits_ms["turn"]))
            running.append(("stall", self._heard_s, self._limits_ms["stall"]))
        for clock, began_s, limit_ms in running:
            if (now_s - began_s) * 1000 >= limit_ms:
                return Fired(clock=clock, limit_ms=limit_ms)
        return None


async def under_watch(
    work: Callable[[], Awaitable[None]],
    watch: Watch,
    *,
    clock: Clock,
    heard_s: Callable[[], float],
    failure: Callable[[], ProctorError | None],
    stop: anyio.Event,
    on_stop: Callable[[Fired | Overspent | ProctorError], None],
) -> None:
    """Do the work until it is done, a clock fires, recording fails or `stop` is set.

    What stopped it is told to `on_stop`, once, before the work is cancelled: its clean-up comes after the cause.
    """
    is_over = False
    async with anyio.create_task_group() as tasks:

        def end(cause: Fired | Overspent | ProctorError | None) -> None:
            nonlocal is_over
            if cause is not None and not is_over:
                on_stop(cause)
            is_over = True
            tasks.cancel_scope.cancel()

        async def tick() -> None:
            cause: Fired | Overspent | ProctorError | None = None
            while cause is None:
                before_s = clock.steady_s()
                with anyio.move_on_after(TICK_S):
                    await stop.wait()
                now_s = clock.steady_s()
                lag_s = now_s - before_s - TICK_S
                if lag_s > LAG_S:
                    watch.pardon(lag_s)
                watch.heard(heard_s())
                cause = Fired(clock=None) if stop.is_set() else failure() or watch.fired(now_s)
            end(cause)

        tasks.start_soon(tick)
        try:
            await work()
            end(None)
        except ProctorError as error:
            end(error)
