"""The loop of a run: starts an attempt whenever a place is free, and schedules retries by how attempts end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from proctor.attempt.model import AttemptResult
from proctor.attempt.watchdog import ClockName
from proctor.campaign.attempt_runner import AttemptRunner
from proctor.campaign.reconcile import reported_tokens
from proctor.campaign.schedule import AttemptEnd, Job, Scheduler
from proctor.campaign.trial_starter import EarlierAttempt
from proctor.event.outcome import Outcome
from proctor.evidence.live import LiveLimit
from proctor.ids import TrialId
from proctor.ledger import writer
from proctor.ledger.schema import LedgerAttempt
from proctor.plan.model import Trial
from proctor.plan.progress import UNTRIED, TrialProgress, remedy_for
from proctor.plan.recover import LATER, Remedy

FAIL_FAST: Final = "fail-fast"
"""How a run ended that stopped at the first trial that failed."""


@dataclass(slots=True, kw_only=True)
class Dispatcher:
    """Starts the attempts of one run and records how they end."""

    attempts: AttemptRunner
    scheduler: Scheduler
    most: int
    """The largest number of attempts at a time, including those that only wait for the disk."""
    until_s: float = math.inf
    """No attempt starts after this time (steady clock)."""
    progress: dict[TrialId, TrialProgress]
    """The progress of each trial, over all runs of the campaign."""
    trials: dict[TrialId, Trial]
    is_fail_fast: bool = False
    """Whether no attempt starts after a trial has failed."""
    results: list[AttemptResult] = field(default_factory=list)
    """The results of this run."""
    news: anyio.Event = field(default_factory=anyio.Event)
    """Set when something has changed, so that the loop looks again."""
    _added: int = 0
    _started: int = 0
    _running: int = 0
    _has_failed: bool = False
    _shown: tuple[tuple[LiveLimit, ...], int] = ((), -1)

    async def run(self, trials: Sequence[Trial]) -> None:
        """Run the trials until each is settled, or no more attempt may start."""
        self._add_all(trials)
        async with anyio.create_task_group() as watching:
            watching.start_soon(self._watch_drain)
            async with anyio.create_task_group() as tasks:
                while (pause_s := self._step(tasks)) is not None:
                    with anyio.move_on_after(pause_s):
                        await self.news.wait()
            watching.cancel_scope.cancel()

    def _add_all(self, trials: Sequence[Trial]) -> None:
        """Queue the trials, and restore the waits that earlier runs were asked for and that are not over."""
        now_s, now_ms, opened = self._now_s(), self.attempts.clock.wall_ms(), self.attempts.opened
        for window in opened.windows:
            if (for_ms := window.until_ms - now_ms) > 0:
                self.scheduler.shut(window.key, code=window.code, for_s=for_ms / 1000, now_s=now_s)
        for trial in trials:
            wait_ms = max(0, opened.due.get(trial.id, 0) - now_ms)
            self._add(trial, not_before_s=now_s + wait_ms / 1000)

    def is_done(self, trials: Sequence[Trial]) -> bool:
        """Whether each of the trials has its result."""
        return all(self._progress_of(trial).is_settled for trial in trials)

    async def _watch_drain(self) -> None:
        await self.attempts.stops.drain.wait()
        self.news.set()

    def _step(self, tasks: TaskGroup) -> float | None:
        """Start what may start. Return how long to wait for news after that, or None when the run is over."""
        self.news = anyio.Event()
        if self.shut is None:
            self._start_due(tasks)
        self._report_schedule()
        now_s = self._now_s()
        # At the limit, counting attempts that only wait for the disk, only the end of one lets another start.
        is_open = self.shut is None and self._running < self.most
        wake_s = self.scheduler.wake_s(now_s) if is_open else None
        if wake_s is not None:
            wake_s = min(wake_s, self.until_s)
        if not self._running and wake_s is None:
            return None
        return math.inf if wake_s is None else max(0.0, wake_s - now_s)

    @property
    def shut(self) -> str | None:
        """Why no more attempt may start; None while one may."""
        stops = self.attempts.stops
        if stops.drain.is_set():
            return "stopped" if stops.all.is_set() else "drained"
        if self.is_fail_fast and self._has_failed:
            return FAIL_FAST
        if self.attempts.spending.is_over:
            return "budget"
        return "limit" if self._now_s() >= self.until_s else None

    def _start_due(self, tasks: TaskGroup) -> None:
        while (
            self._running < self.most and self.shut is None and (job := self.scheduler.start(self._now_s())) is not None
        ):
            self._started += 1
            self._running += 1
            tasks.start_soon(self._try, job)

    def _report_schedule(self) -> None:
        clock = self.attempts.clock
        picture = self.scheduler.picture(now_s=clock.steady_s(), wall_ms=clock.wall_ms())
        waiting = self._added - self._started - len(self.scheduler.left)
        if (picture, waiting) != self._shown:
            self._shown = picture, waiting
            self.attempts.watcher.scheduled(picture, waiting=waiting)

    async def _try(self, job: Job) -> None:
        trial = self.trials[job.trial]
        try:
            candidate = await self.attempts.choose(trial)
            if job.keys != self.attempts.agents.keys(self.attempts.flows[trial.flow]):
                # The flow has moved to another runtime of its chain, with other limits: queue the trial again.
                self.scheduler.ended(job, AttemptEnd(remedy=Remedy.REDO), tries=0, now_s=self._now_s())
                self._add(trial)
                return
            progress = self._progress_of(trial)
            started_at_ms = self.attempts.clock.wall_ms()
            result = await self.attempts.run(
                trial,
                n=progress.attempts_made + 1,
                candidate=candidate,
                before=None if progress.run is None else EarlierAttempt(run_id=progress.run, n=progress.attempts_made),
                started_at_ms=started_at_ms,
                left=self._left(progress),
                at_rest=lambda: self._rest(job),
            )
            self._rest(job)
            self.results.append(result)
            tried = self._ledger_row(trial, result, started_at_ms=started_at_ms, n=progress.attempts_made + 1)
            await self._learn(job, trial, result, tried=tried)
        finally:
            self._running -= 1
            self._leave(job)

    def _rest(self, job: Job) -> None:
        """Let another attempt start before this one is settled, unless that depends on its result."""
        if not self.is_fail_fast:
            self._leave(job)

    def _leave(self, job: Job) -> None:
        """Free the places that the attempt holds: its agent has stopped working, or the attempt is over."""
        self.scheduler.leave(job)
        self.news.set()

    def _left(self, progress: TrialProgress) -> tuple[ClockName, int] | None:
        """Return what is left of the mission's or the campaign's time limit, whichever is shorter; None without one."""
        clocks: list[tuple[ClockName, int]] = []
        if (mission_ms := self.attempts.opened.retry_budget.left_ms(progress.took_ms)) is not None:
            clocks.append(("mission", mission_ms))
        if self.until_s < math.inf:
            clocks.append(("campaign", max(0, round((self.until_s - self._now_s()) * 1000))))
        return min(clocks, key=lambda clock: clock[1], default=None)

    def _ledger_row(self, trial: Trial, result: AttemptResult, *, started_at_ms: int, n: int) -> LedgerAttempt:
        summary, error = result.summary, result.error
        return LedgerAttempt(
            id=result.attempt_id,
            trial=trial.id,
            n=n,
            run=self.attempts.opened.run_id,
            state="abandoned" if summary is None else "sealed",
            started_at_ms=started_at_ms,
            ended_at_ms=self.attempts.clock.wall_ms(),
            outcome=Outcome.UNKNOWN if summary is None else summary.outcome,
            code=summary.code if summary is not None else "run.harness" if error is None else error.code,
            summary=summary,
        )

    async def _learn(self, job: Job, trial: Trial, result: AttemptResult, *, tried: LedgerAttempt) -> None:
        before, retry_budget, after = self._progress_of(trial), self.attempts.opened.retry_budget, remedy_for(tried)
        if after is Remedy.STOP and job.keys != self.attempts.agents.keys(self.attempts.flows[trial.flow]):
            after = Remedy.AGAIN  # its runtime is of no more use, but the flow has moved to another one
        now = self.progress[trial.id] = before.after(tried, retry_budget=retry_budget)
        now_s, now_ms = self._now_s(), self.attempts.clock.wall_ms()
        summary = result.summary
        self._has_failed |= now.is_settled and (summary is None or summary.has_failed)
        pause_ms = None if summary is None else summary.retry_after_ms
        ending = AttemptEnd(remedy=after, code=tried.code, retry_after_s=None if pause_ms is None else pause_ms / 1000)
        again_s = self.scheduler.ended(job, ending, tries=before.failures, now_s=now_s)
        if after not in LATER or (after is Remedy.AGAIN and retry_budget.is_over(now.failures, took_ms=now.took_ms)):
            again_s = None
        retry_at_ms = None if again_s is None else now_ms + round((again_s - now_s) * 1000)
        if summary is None:
            paths = self.attempts.root.run(tried.run).attempt(trial.id, n=tried.n)
            tokens = await anyio.to_thread.run_sync(reported_tokens, paths)
            usd = self.attempts.spending.settle(tried.id, trial.flow, tokens)
            code, total = tried.code or "run.harness", None if tokens is None else tokens.total
            await self.attempts.commit.put(
                writer.abandon_attempt(tried.id, code=code, at_ms=now_ms, tokens=total, usd=usd)
            )
        else:
            usd = self.attempts.spending.settle(tried.id, trial.flow, summary.tokens)
            await self.attempts.commit.put(
                writer.seal_attempt(tried.id, summary, at_ms=now_ms, retry_at_ms=retry_at_ms, usd=usd)
            )
        self.attempts.watcher.settled(result, usd=usd, retry_at_ms=retry_at_ms, is_settled=now.is_settled)
        if again_s is not None:
            self._add(trial, not_before_s=again_s)

    def _add(self, trial: Trial, *, not_before_s: float = 0.0) -> None:
        mission, flow = self.attempts.missions[trial.mission], self.attempts.flows[trial.flow]
        priority = mission.priority + self.attempts.priorities[trial.flow]
        keys = self.attempts.agents.keys(flow)
        self._added += 1
        self.scheduler.add(
            Job(trial=trial.id, flow=trial.flow, keys=keys, priority=priority), not_before_s=not_before_s
        )

    def _progress_of(self, trial: Trial) -> TrialProgress:
        return self.progress.get(trial.id, UNTRIED)

    def _now_s(self) -> float:
        return self.attempts.clock.steady_s()
