"""Trials that wait, and a scheduler that has them."""

from collections.abc import Iterable

from proctor.campaign.schedule import ALL, AttemptEnd, Job, Scheduler
from proctor.ids import FlowId, TrialId
from proctor.plan.recover import Remedy

PROVIDER = "provider:p"
WELL = AttemptEnd(remedy=Remedy.NONE)
RATE = "provider.rate-limited"
QUOTA = "provider.usage-limit"


def job(name: str, *, flow: str = "f", keys: tuple[str, ...] = (PROVIDER,), priority: int = 0) -> Job:
    return Job(trial=TrialId(name), flow=FlowId(flow), keys=keys, priority=priority)


def scheduler(*jobs: Job, parallel: int = 8, backoff_s: float = 2.0, longest_wait_s: float = 21600.0) -> Scheduler:
    made = Scheduler({ALL: parallel}, backoff_s=backoff_s, longest_wait_s=longest_wait_s, seed=1)
    for each in jobs:
        made.add(each)
    return made


def jobs(count: int, *, flow: str = "f") -> list[Job]:
    return [job(f"{flow}{n}", flow=flow) for n in range(count)]


def started(made: Scheduler, *, now_s: float) -> list[Job]:
    return list(iter(lambda: made.start(now_s), None))


def names(these: Iterable[Job]) -> list[str]:
    return [each.trial for each in these]


def level(made: Scheduler, key: str = PROVIDER) -> float:
    return made.throttle(key).now


def refusal(code: str, *, retry_after_s: float | None = None) -> AttemptEnd:
    remedy = Remedy.PARK if code == QUOTA else Remedy.YIELD
    return AttemptEnd(remedy=remedy, code=code, retry_after_s=retry_after_s)
