"""Decides which trial is run next, and when. Pure and deterministic: the caller passes the time and starts it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf

from proctor.campaign.throttle import LONGEST_PAUSE_S, Throttle, growing_pause_s
from proctor.evidence.live import LiveLimit
from proctor.ids import FlowId, TrialId
from proctor.plan.recover import Remedy, shared_by

ALL = "all"
"""The key of the limit that every attempt counts against."""


def rationed(code: str | None, keys: tuple[str, ...]) -> str:
    """Return which of the keys that an attempt counted against a refusal with this code is about.

    >>> rationed("provider.usage-limit", ("provider:p", "credential:c")), rationed("peer.overloaded", ("provider:p",))
    ('credential:c', 'all')
    """
    shared = (key for kind in shared_by(code) for key in keys if key.startswith(f"{kind}:"))
    return next(shared, ALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A trial that waits to be run. `keys` are the limits it counts against, besides `ALL`."""

    trial: TrialId
    flow: FlowId
    keys: tuple[str, ...] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended, as far as it matters for scheduling."""

    remedy: Remedy
    retry_after_s: float | None = None
    """The pause that the provider asked for."""
    code: str | None = None
    """Why it ended. After YIELD and PARK it decides which limit is affected; after STOP it is reported."""


@dataclass(slots=True)
class _Queue:
    """The waiting jobs of a flow that count against the same limits: either any of them may run, or none."""

    flow: FlowId
    throttles: tuple[Throttle, ...]
    ready: list[tuple[int, int, Job]] = field(default_factory=list)  # by priority, then in the order added
    later: list[tuple[float, int, Job]] = field(default_factory=list)  # by the time they are due

    def ripen(self, now_s: float) -> None:
        while self.later and self.later[0][0] <= now_s:
            _, number, job = heappop(self.later)
            heappush(self.ready, (-job.priority, number, job))

    @property
    def has_place(self) -> bool:
        return all(throttle.has_place for throttle in self.throttles)

    @property
    def opens_s(self) -> float:
        """When the next job is due and no limit is shut; infinity if nothing waits."""
        due_s = 0.0 if self.ready else self.later[0][0] if self.later else inf
        return max(due_s, *(throttle.shut_until_s for throttle in self.throttles))

    def clear(self) -> Iterator[Job]:
        for _, _, job in sorted((*self.ready, *self.later), key=lambda waiting: waiting[1]):
            yield job
        self.ready.clear()
        self.later.clear()


@dataclass(slots=True)
class _FlowUsage:
    """How many places a flow holds, and the number of its last start."""

    taken: int = 0
    last_start: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusals:
    """Refusals of one trial in a row. Counted so that a trial that can never be served is not retried forever."""

    times: int = 0
    waited_s: float = 0.0


@dataclass(slots=True)
class Scheduler:
    """Chooses the next job under limits by key. A key without a limit is limited by `ALL` alone until it is refused.

    The highest priority goes first; among equals the flow with the fewest running attempts, then the one that started
    an attempt the longest time ago. A job that may run never waits for one that may not.
    """

    limits: Mapping[str, int]
    backoff_s: float = 2.0
    start_interval_s: float = 0.0
    seed: int = 0
    longest_wait_s: float = 6 * 3600.0
    stopped: dict[FlowId, str | None] = field(default_factory=dict, init=False)
    """Flows that run no more trials, with the codes that stopped them."""
    given_up: dict[str, str] = field(default_factory=dict, init=False)
    """Keys that were refused for longer than a run waits, with the last refusal's code; trials as `trial:ID`."""
    left: list[Job] = field(default_factory=list, init=False)
    """Jobs that `stopped` or `given_up` keeps from running. They are left for another run."""
    _queues: dict[tuple[FlowId, tuple[str, ...]], _Queue] = field(default_factory=dict, init=False)
    _throttles: dict[str, Throttle] = field(default_factory=dict, init=False)
    _uses: dict[FlowId, _FlowUsage] = field(default_factory=dict, init=False)
    _placed: set[TrialId] = field(default_factory=set, init=False)
    _open_starts: dict[TrialId, int] = field(default_factory=dict, init=False)
    _refusals: dict[TrialId, _Refusals] = field(default_factory=dict, init=False)
    _added: int = field(default=0, init=False)
    _starts: int = field(default=0, init=False)
    _next_start_s: float = field(default=0.0, init=False)

    def add(self, job: Job, *, not_before_s: float = 0.0) -> None:
        """Queue a job, or put it into `left` if its flow was stopped or one of its keys given up."""
        if self._is_forbidden(job):
            self.left.append(job)
            return
        queue = self._queues.get((job.flow, job.keys))
        if queue is None:
            queue = self._queues[job.flow, job.keys] = _Queue(job.flow, tuple(self._throttles_of(job)))
        self._added += 1
        heappush(queue.later, (not_before_s, self._added, job))

    def shut(self, key: str, *, code: str, for_s: float, now_s: float) -> None:
        """Shut a key whose quota an earlier run found used up, as if an attempt of this run had just been refused."""
        self._starts += 1
        after = AttemptEnd(remedy=Remedy.PARK, code=code, retry_after_s=min(for_s, self.longest_wait_s))
        self._refused(key, after, start=self._starts, now_s=now_s)

    def start(self, now_s: float) -> Job | None:
        """Return the next job that may run now, and take its places; None if nothing may run."""
        if now_s < self._next_start_s or not self.throttle(ALL).has_place:
            return None
        chosen: _Queue | None = None
        best: tuple[int, int, int, int] | None = None
        for queue in self._queues.values():
            queue.ripen(now_s)
            if queue.ready and queue.opens_s <= now_s and queue.has_place:
                use = self._uses.get(queue.flow, _FlowUsage())
                order, number, _ = queue.ready[0]
                rank = (order, use.taken, use.last_start, number)
                if best is None or rank < best:
                    chosen, best = queue, rank
        if chosen is None:
            return None
        _, _, job = heappop(chosen.ready)
        self._begin(job, chosen.throttles)
        self._next_start_s = now_s + self.start_interval_s
        return job

    def _begin(self, job: Job, throttles: tuple[Throttle, ...]) -> None:
        self._starts += 1
        use = self._uses.setdefault(job.flow, _FlowUsage())
        use.taken += 1
        use.last_start = self._starts
        for throttle in throttles:
            throttle.taken += 1
            throttle.unheard += 1
        self._placed.add(job.trial)
        self._open_starts[job.trial] = self._starts

    def wake_s(self, now_s: float) -> float | None:
        """Return when to call `start` again if nothing ends until then; None if only an end can change anything."""
        opens_s = min((queue.opens_s for queue in self._queues.values() if queue.has_place), default=inf)
        return None if opens_s == inf else max(now_s, opens_s, self._next_start_s)

    def leave(self, job: Job) -> None:
        """Free the places of a job whose agent has stopped working, even if evidence is still being written."""
        if job.trial in self._placed:
            self._placed.remove(job.trial)
            self._uses[job.flow].taken -= 1
            for throttle in self._throttles_of(job):
                throttle.taken -= 1

    def ended(self, job: Job, after: AttemptEnd, *, tries: int, now_s: float) -> float | None:
        """Adjust the limits to how an attempt ended. Return when the job should run again; None if it should not.

        `tries` is the number of its retries so far. The caller adds the job again. Its places are freed if they are
        still taken.
        """
        self.leave(job)
        start = self._open_starts.pop(job.trial)
        refused = self._refusals.pop(job.trial, _Refusals())
        again_s: float | None = None
        match after.remedy:
            case Remedy.NONE:
                for throttle in self._throttles_of(job):
                    throttle.served(start=start)
            case Remedy.AGAIN:
                requested_s = min(after.retry_after_s or 0.0, self.longest_wait_s)
                again_s = now_s + max(self._pause_s(job, tries), requested_s)
            case Remedy.YIELD | Remedy.PARK:
                opens_s = self._refused(rationed(after.code, job.keys), after, start=start, now_s=now_s)
                again_s = self._again_s(job, after, refused, opens_s=max(now_s, opens_s), now_s=now_s)
            case Remedy.REDO | Remedy.FRESH:
                again_s = now_s
            case Remedy.STOP:
                self.stopped.setdefault(job.flow, after.code)
                self._forbid()
        for throttle in self._throttles_of(job):
            throttle.unheard -= 1
        return None if self._is_forbidden(job) else again_s

    def _refused(self, key: str, after: AttemptEnd, *, start: int, now_s: float) -> float:
        throttle = self.throttle(key)
        why = after.code or after.remedy.value
        throttle.refused(
            start=start,
            starts=self._starts,
            now_s=now_s,
            retry_after_s=after.retry_after_s,
            is_quota=after.remedy is Remedy.PARK,
            why=why,
        )
        if throttle.is_given_up:
            self.given_up.setdefault(throttle.key, why)
            self._forbid()
        return throttle.shut_until_s

    def _again_s(
        self, job: Job, after: AttemptEnd, refused: _Refusals, *, opens_s: float, now_s: float
    ) -> float | None:
        if refused.times and refused.waited_s >= self.longest_wait_s:
            self.given_up[f"trial:{job.trial}"] = after.code or after.remedy.value
            return None
        pause_s = self._pause_s(job, refused.times - 1) if refused.times else 0.0
        again_s = max(opens_s, now_s + pause_s)
        self._refusals[job.trial] = _Refusals(times=refused.times + 1, waited_s=refused.waited_s + again_s - now_s)
        return again_s

    def _pause_s(self, job: Job, times: int) -> float:
        return growing_pause_s(self.backoff_s, times, longest_s=LONGEST_PAUSE_S, seed=self.seed, who=job.trial)

    def warnings(self) -> Iterator[str]:
        """Yield what is left for another run, and why."""
        for flow, code in self.stopped.items():
            yield f"flow `{flow}` was stopped by {code or 'an attempt'}: its unfinished trials are left for a resume"
        for key, why in self.given_up.items():
            yield f"{key} stayed unavailable ({why}): the unfinished trials that need it are left for a resume"

    def picture(self, *, now_s: float, wall_ms: int) -> tuple[LiveLimit, ...]:
        """Return the state of every limit that is configured or was imposed by a refusal."""
        keys = [*self.limits, *(key for key, each in self._throttles.items() if each.why and key not in self.limits)]
        return tuple(self._live_limit(self.throttle(key), now_s=now_s, wall_ms=wall_ms) for key in keys)

    def _live_limit(self, throttle: Throttle, *, now_s: float, wall_ms: int) -> LiveLimit:
        shut_s = 0.0 if throttle.is_given_up else throttle.shut_until_s - now_s
        return LiveLimit(
            key=throttle.key,
            maximum=throttle.most,
            current_maximum=int(throttle.now),
            taken=throttle.taken,
            until_ms=wall_ms + ceil(shut_s * 1000) if shut_s > 0 else None,
            why=throttle.why,
        )

    def throttle(self, key: str) -> Throttle:
        """Return the throttle of a key; create it if necessary."""
        throttle = self._throttles.get(key)
        if throttle is None:
            throttle = self._throttles[key] = Throttle(
                key=key,
                most=self.limits.get(key, self.limits[ALL]),
                backoff_s=self.backoff_s,
                longest_wait_s=self.longest_wait_s,
                seed=self.seed,
            )
        return throttle

    def _throttles_of(self, job: Job) -> Iterator[Throttle]:
        return map(self.throttle, (ALL, *job.keys))

    def _is_forbidden(self, job: Job) -> bool:
        return job.flow in self.stopped or any(key in self.given_up for key in (ALL, *job.keys))

    def _forbid(self) -> None:
        """Move the waiting jobs that are stopped or given up into `left`."""
        for queue in self._queues.values():
            if queue.flow in self.stopped or any(throttle.is_given_up for throttle in queue.throttles):
                self.left.extend(queue.clear())
