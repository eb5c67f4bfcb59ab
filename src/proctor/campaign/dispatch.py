"""The loop of a run: starts an attempt whenever a place is free, and learns from how each one ends."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from proctor.attempt.model import AttemptResult
from proctor.attempt.watchdog import ClockName
from proctor.campaign import ledger
from proctor.campaign.cell import Attempts
from proctor.campaign.reconcile import tokens_told
from proctor.campaign.schedule import After, Job, Scheduler
from proctor.event.outcome import Outcome
from proctor.evidence.live import LiveLimit
from proctor.ids import CellId, StrategyId
from proctor.plan.model import Cell
from proctor.plan.recover import LATER, Remedy
from proctor.plan.standing import UNTRIED, CellProgress, Tried, follows


@dataclass(slots=True, kw_only=True)
class Dispatcher:
    """`standings` are those of the cells so far; `results` are of this run. `news` is that something has changed."""

    attempts: Attempts
    scheduler: Scheduler
    most: int  # at a time, with those that wait for the disk only
    until_s: float = math.inf  # nothing begins after it
    standings: dict[CellId, CellProgress]
    cells: dict[CellId, Cell]
    results: list[AttemptResult] = field(default_factory=list)
    news: anyio.Event = field(default_factory=anyio.Event)
    _added: int = 0
    _started: int = 0
    _running: int = 0
    _shown: tuple[tuple[LiveLimit, ...], int] = ((), -1)

    async def run(self, cells: Sequence[Cell]) -> None:
        """Try them until each is settled, or nothing more may begin."""
        self._take_up(cells)
        async with anyio.create_task_group() as heeding:
            heeding.start_soon(self._heed_drain)
            async with anyio.create_task_group() as tasks:
                while (pause_s := self._step(tasks)) is not None:
                    with anyio.move_on_after(pause_s):
                        await self.news.wait()
            heeding.cancel_scope.cancel()

    def _take_up(self, cells: Sequence[Cell]) -> None:
        """They wait from now on, and for what the runs before this were told to wait for."""
        now_s, now_ms, opened = self._now_s(), self.attempts.clock.wall_ms(), self.attempts.opened
        for window in opened.windows:
            if (for_ms := window.until_ms - now_ms) > 0:
                self.scheduler.shut(window.key, code=window.code, for_s=for_ms / 1000, now_s=now_s)
        for cell in cells:
            wait_ms = max(0, opened.due.get(cell.id, 0) - now_ms)
            self._add(cell, not_before_s=now_s + wait_ms / 1000)

    def is_done(self, cells: Sequence[Cell]) -> bool:
        """Whether each of them has a result that stands."""
        return all(self._standing(cell).is_settled for cell in cells)

    async def _heed_drain(self) -> None:
        await self.attempts.stops.drain.wait()
        self.news.set()

    def _step(self, tasks: TaskGroup) -> float | None:
        """Start what may start; how long to wait for news then, or None when it is over."""
        self.news = anyio.Event()
        if self.shut is None:
            self._start_due(tasks)
        self._tell()
        now_s = self._now_s()
        # Where the disk has as many as it may have, only an end lets another begin, whatever the scheduler would.
        is_open = self.shut is None and self._running < self.most
        wake_s = self.scheduler.wake_s(now_s) if is_open else None
        if wake_s is not None:
            wake_s = min(wake_s, self.until_s)
        if not self._running and wake_s is None:
            return None
        return math.inf if wake_s is None else max(0.0, wake_s - now_s)

    @property
    def shut(self) -> str | None:
        """Why nothing more begins, where that is so."""
        stops = self.attempts.stops
        if stops.drain.is_set():
            return "stopped" if stops.all.is_set() else "drained"
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

    def _tell(self) -> None:
        clock = self.attempts.clock
        picture = self.scheduler.picture(now_s=clock.steady_s(), wall_ms=clock.wall_ms())
        waiting = self._added - self._started - len(self.scheduler.left)
        if (picture, waiting) != self._shown:
            self._shown = picture, waiting
            self.attempts.watcher.scheduled(picture, waiting=waiting)

    async def _try(self, job: Job) -> None:
        cell = self.cells[job.cell]
        try:
            candidate = await self.attempts.choose(cell)
            if job.keys != self.attempts.agents.keys(self.attempts.flows[cell.flow]):
                # Its flow has fallen to another of its chain, for which other limits hold: as if it had not started.
                self.scheduler.ended(job, After(remedy=Remedy.REDO), tries=0, now_s=self._now_s())
                self._add(cell)
                return
            standing = self._standing(cell)
            claimed_at_ms = self.attempts.clock.wall_ms()
            result = await self.attempts.run(
                cell,
                n=standing.made + 1,
                candidate=candidate,
                claimed_at_ms=claimed_at_ms,
                left=self._left(standing),
                at_rest=lambda: self._leave(job),
            )
            self._leave(job)
            self.results.append(result)
            tried = self._tried(cell, result, claimed_at_ms=claimed_at_ms, n=standing.made + 1)
            await self._learn(job, cell, result, tried=tried, strategy=candidate.strategy)
        finally:
            self._running -= 1
            self._leave(job)

    def _leave(self, job: Job) -> None:
        """What it takes of all that is rationed is free: its agent is at rest, or it is over."""
        self.scheduler.leave(job)
        self.news.set()

    def _left(self, standing: CellProgress) -> tuple[ClockName, int] | None:
        """What is left of the shorter of the clocks over more than an attempt, where there is one."""
        clocks: list[tuple[ClockName, int]] = []
        if (mission_ms := self.attempts.opened.patience.left_ms(standing.took_ms)) is not None:
            clocks.append(("mission", mission_ms))
        if self.until_s < math.inf:
            clocks.append(("campaign", max(0, round((self.until_s - self._now_s()) * 1000))))
        return min(clocks, key=lambda clock: clock[1], default=None)

    def _tried(self, cell: Cell, result: AttemptResult, *, claimed_at_ms: int, n: int) -> Tried:
        report, error = result.report, result.error
        return Tried(
            id=result.attempt_id,
            cell=cell.id,
            n=n,
            run=self.attempts.opened.run_id,
            state="abandoned" if report is None else "sealed",
            claimed_at_ms=claimed_at_ms,
            ended_at_ms=self.attempts.clock.wall_ms(),
            outcome=Outcome.UNKNOWN if report is None else report.outcome,
            code=report.code if report is not None else "run.harness" if error is None else error.code,
        )

    async def _learn(self, job: Job, cell: Cell, result: AttemptResult, *, tried: Tried, strategy: StrategyId) -> None:
        before, patience, after = self._standing(cell), self.attempts.opened.patience, follows(tried)
        if after is Remedy.STOP and job.keys != self.attempts.agents.keys(self.attempts.flows[cell.flow]):
            after = Remedy.AGAIN  # nothing more comes of its lane, but the flow has fallen to another
        now = self.standings[cell.id] = before.then(tried, patience=patience)
        now_s, now_ms = self._now_s(), self.attempts.clock.wall_ms()
        pause_ms = None if result.report is None else result.report.retry_after_ms
        ending = After(remedy=after, code=tried.code, retry_after_s=None if pause_ms is None else pause_ms / 1000)
        again_s = self.scheduler.ended(job, ending, tries=before.failures, now_s=now_s)
        if after not in LATER or (after is Remedy.AGAIN and patience.is_over(now.failures, took_ms=now.took_ms)):
            again_s = None
        retry_at_ms = None if again_s is None else now_ms + round((again_s - now_s) * 1000)
        if result.report is None:
            paths = self.attempts.root.run(tried.run).attempt(cell.id, n=tried.n)
            tokens = await anyio.to_thread.run_sync(tokens_told, paths)
            usd = self.attempts.spending.settle(tried.id, cell.flow, tokens)
            code, total = tried.code or "run.harness", None if tokens is None else tokens.total
            await self.attempts.commit.put(ledger.abandon(tried.id, code=code, at_ms=now_ms, tokens=total, usd=usd))
        else:
            usage = result.report.metrics.usage
            usd = self.attempts.spending.settle(tried.id, cell.flow, None if usage is None else usage.tokens)
            await self.attempts.commit.put(
                ledger.settle(
                    tried.id, result.report, at_ms=now_ms, strategy=strategy, retry_at_ms=retry_at_ms, usd=usd
                )
            )
        self.attempts.watcher.settled(result, usd=usd, retry_at_ms=retry_at_ms, is_settled=now.is_settled)
        if again_s is not None:
            self._add(cell, not_before_s=again_s)

    def _add(self, cell: Cell, *, not_before_s: float = 0.0) -> None:
        mission, flow = self.attempts.missions[cell.mission], self.attempts.flows[cell.flow]
        priority = mission.priority + self.attempts.priorities[cell.flow]
        keys = self.attempts.agents.keys(flow)
        self._added += 1
        self.scheduler.add(Job(cell=cell.id, flow=cell.flow, keys=keys, priority=priority), not_before_s=not_before_s)

    def _standing(self, cell: Cell) -> CellProgress:
        return self.standings.get(cell.id, UNTRIED)

    def _now_s(self) -> float:
        return self.attempts.clock.steady_s()
