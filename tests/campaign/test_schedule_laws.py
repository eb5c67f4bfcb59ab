"""The scheduler's laws, whatever is added, ends or is refused, and whenever: against a plain account of the same."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf, nextafter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from proctor.campaign.schedule import ALL, AttemptEnd, Job, Scheduler
from proctor.ids import FlowId, TrialId
from proctor.plan.recover import Remedy

KEYS = {
    FlowId("solo"): (),
    FlowId("left"): ("runtime:one", "provider:p", "credential:c1"),
    FlowId("right"): ("runtime:two", "provider:p", "credential:c2"),
    FlowId("twin"): ("runtime:two", "provider:p", "credential:c2"),
}
LIMITS = {ALL: 5, "runtime:two": 3, "provider:p": 4, "credential:c1": 2}
CODES = {
    Remedy.YIELD: ["provider.rate-limited", "provider.overloaded", "peer.overloaded"],
    Remedy.PARK: ["provider.usage-limit"],
}
ENDS = [
    *[AttemptEnd(remedy=Remedy.NONE)] * 4,
    AttemptEnd(remedy=Remedy.REDO),
    AttemptEnd(remedy=Remedy.AGAIN),
    AttemptEnd(remedy=Remedy.AGAIN, retry_after_s=7.5),
    *(
        AttemptEnd(remedy=remedy, code=code, retry_after_s=told)
        for remedy, codes in CODES.items()
        for code in codes
        for told in (None, 0.0, 1.5, 40.0)
    ),
]
STOPS = [
    AttemptEnd(remedy=Remedy.STOP, code="provider.unauthorized"),
    AttemptEnd(remedy=Remedy.PARK, retry_after_s=1e6),
]


@dataclass(slots=True)
class Account:
    """What waits and what runs, in the plainest form."""

    waiting: dict[TrialId, tuple[Job, float]] = field(default_factory=dict)
    placed: dict[TrialId, Job] = field(default_factory=dict)
    at_rest: dict[TrialId, Job] = field(default_factory=dict)

    def taken(self, key: str) -> int:
        return sum(key == ALL or key in job.keys for job in self.placed.values())

    def in_use(self, flow: FlowId) -> int:
        return sum(job.flow == flow for job in self.placed.values())


class Laws(RuleBasedStateMachine):
    """Time moves only here."""

    interval_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[Callable[[Scheduler], Any], Any]] = []
        self.scheduler = self.made()
        self.account = Account()
        self.now_s = 1000.0
        self.tries: dict[TrialId, int] = {}
        self.last_start_s = -inf
        self.passed_over: dict[FlowId, list[FlowId]] = {flow: [] for flow in KEYS}

    def made(self) -> Scheduler:
        return Scheduler(LIMITS, backoff_s=2, start_interval_s=self.interval_s, seed=7, longest_wait_s=900)

    def do(self, act: Callable[[Scheduler], Any]) -> Any:
        answer = act(self.scheduler)
        self.log.append((act, answer))
        return answer

    # ── the oracle ──

    def may_start(self, now_s: float) -> list[Job]:
        """Everything that no law keeps from starting."""
        if now_s < self.last_start_s + self.interval_s:
            return []
        return [job for job, at_s in self.account.waiting.values() if at_s <= now_s and self.is_admitted(job, now_s)]

    def is_admitted(self, job: Job, now_s: float) -> bool:
        throttles = [self.scheduler.throttle(key) for key in (ALL, *job.keys)]
        return all(self.account.taken(each.key) < each.now and each.shut_until_s <= now_s for each in throttles)

    # ── what happens ──

    @rule(flow=st.sampled_from(list(KEYS)), priority=st.sampled_from([0, 0, 1]), wait_s=st.sampled_from([0.0, 0.0, 6]))
    def add(self, flow: FlowId, priority: int, wait_s: float) -> None:
        trial = TrialId(f"c{len(self.tries)}")
        self.tries[trial] = 0
        self.put(Job(trial=trial, flow=flow, keys=KEYS[flow], priority=priority), self.now_s + wait_s)

    def put(self, job: Job, at_s: float) -> None:
        left = len(self.scheduler.left)
        self.do(lambda scheduler: scheduler.add(job, not_before_s=at_s))
        if len(self.scheduler.left) == left:
            self.account.waiting[job.trial] = job, at_s

    @rule(most=st.integers(min_value=1, max_value=6))
    def start(self, most: int) -> None:
        for _ in range(most):
            self.start_one()

    def start_one(self) -> bool:
        now_s, could = self.now_s, self.may_start(self.now_s)
        job = self.do(lambda scheduler: scheduler.start(now_s))
        assert (job is None) == (not could), "no place stays empty that something could have"
        if job is None:
            return False
        assert job in could, "limits, pauses and gaps are kept"
        assert job.priority == max(each.priority for each in could)
        equals = {each.flow for each in could if each.priority == job.priority}
        assert self.account.in_use(job.flow) == min(map(self.account.in_use, equals))
        self.turn_taken(job, equals)
        self.last_start_s = now_s
        del self.account.waiting[job.trial]
        self.account.placed[job.trial] = job
        return True

    def turn_taken(self, job: Job, equals: Iterable[FlowId]) -> None:
        self.passed_over[job.flow] = []
        for flow in equals:
            if flow != job.flow and self.account.in_use(flow) == 0:
                self.passed_over[flow].append(job.flow)
                assert len(set(self.passed_over[flow])) == len(self.passed_over[flow]), "nobody goes twice before it"

    @rule(by_s=st.sampled_from([0.25, 1.0, 3.0, 50.0]))
    def pass_time(self, by_s: float) -> None:
        self.now_s += by_s

    @rule()
    def sleep_as_told(self) -> None:
        now_s = self.now_s
        wake_s = self.do(lambda scheduler: scheduler.wake_s(now_s))
        if wake_s is None:
            assert not self.may_start(1e12), "only an end can change anything"
            return
        assert wake_s >= now_s
        assert self.may_start(wake_s), "something can start when we are woken"
        if wake_s > now_s:
            assert not self.may_start(nextafter(wake_s, -inf)), "nothing could have started before"
        self.now_s = wake_s

    @precondition(lambda self: self.account.placed)
    @rule(which=st.integers(min_value=0))
    def leave(self, which: int) -> None:
        job = self.account.placed.pop(list(self.account.placed)[which % len(self.account.placed)])
        self.account.at_rest[job.trial] = job
        self.do(lambda scheduler: scheduler.leave(job))

    @precondition(lambda self: self.account.placed or self.account.at_rest)
    @rule(which=st.integers(min_value=0), after=st.sampled_from(ENDS))
    def end(self, which: int, after: AttemptEnd) -> None:
        running = {**self.account.at_rest, **self.account.placed}
        job = list(running.values())[which % len(running)]
        now_s, tries = self.now_s, self.tries[job.trial]
        again_s = self.do(lambda scheduler: scheduler.ended(job, after, tries=tries, now_s=now_s))
        self.account.placed.pop(job.trial, None)
        self.account.at_rest.pop(job.trial, None)
        left = {each.trial for each in self.scheduler.left}
        self.account.waiting = {trial: at for trial, at in self.account.waiting.items() if trial not in left}
        if after.remedy is Remedy.AGAIN:
            self.tries[job.trial] += 1
        if again_s is not None:
            assert after.remedy not in (Remedy.NONE, Remedy.STOP)
            assert again_s >= now_s + (after.retry_after_s or 0), "who is told to wait waits"
            self.put(job, again_s)

    @precondition(lambda self: (self.account.placed or self.account.at_rest) and len(self.log) > 25)
    @rule(which=st.integers(min_value=0), after=st.sampled_from(STOPS))
    def end_for_good(self, which: int, after: AttemptEnd) -> None:
        self.end(which=which, after=after)

    # ── what holds all the time ──

    @invariant()
    def every_limit_holds(self) -> None:
        for key, most in LIMITS.items():
            assert self.account.taken(key) <= most
        for limit in self.scheduler.picture(now_s=self.now_s, wall_ms=0):
            assert limit.taken == self.account.taken(limit.key)
            assert limit.current_maximum <= limit.maximum == LIMITS.get(limit.key, LIMITS[ALL])

    def teardown(self) -> None:
        """All that waits starts in the end, and the same events give the same order."""
        left = {job.trial for job in self.scheduler.left}
        for _ in range(10 * len(self.tries) + 10):
            while self.start_one():
                pass
            for trial in list(self.account.placed):
                assert trial not in left
                self.end(which=len(self.account.at_rest), after=AttemptEnd(remedy=Remedy.NONE))
            if not self.account.waiting:
                break
            self.sleep_as_told()
        assert not self.account.waiting, "everything starts in the end"
        again = self.made()
        assert [act(again) for act, _ in self.log] == [answer for _, answer in self.log]


class LawsWithGaps(Laws):
    """The same, with a gap between starts."""

    interval_s = 0.75


LAWS = settings(max_examples=60, stateful_step_count=60, deadline=None)


@pytest.mark.long
@pytest.mark.requirement("schedule.pool", "schedule.rate-limit")
@pytest.mark.parametrize("laws", [Laws, LawsWithGaps])
def test_the_scheduler_keeps_its_laws(laws: type[Laws]) -> None:
    run_state_machine_as_test(laws, settings=LAWS)
