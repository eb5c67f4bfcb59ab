"""The current state of a running campaign, folded from its watcher's calls and kept in live.json while it runs."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread

from proctor.attempt.machine import State
from proctor.attempt.model import AttemptResult
from proctor.campaign.watch import CampaignWatcher, RunStart
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.errors import MachineError
from proctor.event.model import Event, SessionBegan, Tokens, ToolBegan, TurnBegan, UsageReported
from proctor.event.usage import UsageFold
from proctor.evidence.layout import write_artifact
from proctor.evidence.live import Live, LiveAttempt, LiveLimit
from proctor.ids import AttemptId, RuntimeId, TrialId

PERIOD_S = 1.0

DescribeCall = Callable[[str, Any], str]
"""Describes a tool call in one line, given its name and input."""
Price = Callable[[AttemptId, Tokens], float | None]
"""Returns what an attempt's tokens cost in USD; None if that is not known."""

_PHASE = {State.SESSION_STARTING: "starting", State.SESSION_READY: "starting", State.TURN_RUNNING: "working"}
_OVER = (State.SEALED, State.ABANDONED)


@dataclass(slots=True, kw_only=True)
class AttemptTrack:
    """What was seen of one running attempt."""

    began_at_ms: int
    heard_at_ms: int
    runtime_id: RuntimeId | None = None
    state: State = State.QUEUED
    tool: ToolBegan | None = None
    calls: int = 0
    usage: UsageFold = field(default_factory=UsageFold)

    @property
    def phase(self) -> str:
        return _PHASE.get(self.state, self.state.value)


def _unpriced(_: AttemptId, __: Tokens) -> None:
    """No price is known."""


@dataclass(slots=True, kw_only=True)
class LiveView(CampaignWatcher):
    """Follows every attempt and forgets those that are over. Everything derived is computed only in `describe`."""

    describe_call: DescribeCall
    price: Price = _unpriced
    clock: Clock = SYSTEM_CLOCK
    trials: int = 0
    """As planned, until the run reports its own number."""
    run: RunStart | None = None
    running: dict[AttemptId, AttemptTrack] = field(default_factory=dict)
    settled_here: int = 0
    """Trials that got their result in this run."""
    ended_here: int = 0
    """Attempts of this run that are over."""
    limits: tuple[LiveLimit, ...] = ()
    waiting: int = 0
    usd: float | None = 0.0
    is_stopping: str | None = None
    checked: tuple[int, int] | None = None
    """Probes that were checked before the run, and their number; None before that."""
    changes: int = 0
    has_begun: anyio.Event = field(default_factory=anyio.Event)
    _retries: dict[TrialId, int] = field(default_factory=dict)

    @property
    def settled_trials(self) -> int:
        return self.settled_here + (0 if self.run is None else self.run.settled)

    def began(self, began: RunStart) -> None:
        self.run, self.trials = began, began.trials
        self._retries.update(began.due)
        self.changes += 1
        self.has_begun.set()

    def probes_checked(self, done: int, *, of: int) -> None:
        self.checked = (done, of)

    def started(self, attempt: AttemptId, *, runtime_id: RuntimeId) -> None:
        self._retries.pop(_trial(attempt), None)
        self.track(attempt).runtime_id = runtime_id

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        self.track(attempt).state = state
        if state in _OVER:
            del self.running[attempt]

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        track = self.track(attempt)
        match event:
            case ToolBegan():
                track.tool = event
                track.calls += 1
            case UsageReported() | TurnBegan() | SessionBegan():
                track.usage.feed(event)

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        self.limits, self.waiting = limits, waiting
        if not waiting:
            self._retries.clear()  # the waiting trials were given up
        self.changes += 1

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        self.running.pop(result.attempt_id, None)
        self.ended_here += 1
        self.usd = None if usd is None or self.usd is None else self.usd + usd
        if retry_at_ms is not None:
            self._retries[_trial(result.attempt_id)] = retry_at_ms
        self.settled_here += is_settled
        self.changes += 1

    def stopping(self, how: str) -> None:
        self.is_stopping = how
        self.changes += 1

    def track(self, attempt: AttemptId) -> AttemptTrack:
        """Return the track of a running attempt, and note that it was just active."""
        self.changes += 1
        now_ms = self.clock.wall_ms()
        track = self.running.get(attempt)
        if track is None:
            track = self.running[attempt] = AttemptTrack(began_at_ms=now_ms, heard_at_ms=now_ms)
        track.heard_at_ms = now_ms
        return track

    def left_ms(self, *, took_ms: int) -> int | None:
        """Estimate the time left. None until as many trials have settled in this run as run at a time."""
        if self.settled_here < max(2, len(self.running)) or self.settled_trials >= self.trials:
            return None
        return round(took_ms / self.settled_here * (self.trials - self.settled_trials))

    def describe(self) -> Live | None:
        """Return the current state; None before the run has begun."""
        if self.run is None:
            return None
        return Live(
            at_ms=self.clock.wall_ms(),
            run_id=self.run.run_id,
            trials=self.trials,
            settled=self.settled_trials,
            waiting=self.waiting,
            retrying=len(self._retries),
            retry_at_ms=min(self._retries.values(), default=None),
            usd=self.usd if self.ended_here else None,
            running=tuple(self.look_at(attempt, track) for attempt, track in list(self.running.items())),
            limits=self.limits,
            stopping=self.is_stopping,
        )

    def look_at(self, attempt: AttemptId, track: AttemptTrack) -> LiveAttempt:
        tokens = track.usage.tokens
        return LiveAttempt(
            attempt_id=attempt,
            phase=track.phase,
            doing=""
            if track.tool is None
            else f"{track.tool.name}: {self.describe_call(track.tool.name, track.tool.input)}",
            tokens=None if tokens is None else tokens.total,
            usd=None if tokens is None else self.price(attempt, tokens),
            began_at_ms=track.began_at_ms,
            heard_at_ms=track.heard_at_ms,
        )


def _trial(attempt: AttemptId) -> TrialId:
    return TrialId(attempt.rpartition(".")[0])


@asynccontextmanager
async def keep_live(picture: LiveView, *, period_s: float = PERIOD_S) -> AsyncIterator[None]:
    """Keep live.json up to date beside the ledger while this is open. If it cannot be written, the run continues."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_write_changes, picture, period_s)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
    finally:
        if picture.run is not None:
            with suppress(OSError):
                picture.run.paths.live.unlink()


async def _write_changes(picture: LiveView, period_s: float) -> None:
    await picture.has_begun.wait()
    written = -1
    while picture.run is not None:
        changes, live = picture.changes, picture.describe()
        if changes != written and live is not None:
            path = picture.run.paths.live
            # Try again after a failure: a disk that was full may have space again.
            with suppress(MachineError):
                await anyio.to_thread.run_sync(lambda: write_artifact(path, live, redactor=None, is_durable=False))  # noqa: B023
                written = changes
        await anyio.sleep(period_s)
