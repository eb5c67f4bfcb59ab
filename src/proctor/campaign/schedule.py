"""Which cell is tried next, and when: told the time, it starts nothing itself. Pure and deterministic."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor.campaign.recover import Remedy
from proctor.evidence.live import LiveLimit
from proctor.ids import CellId, FlowId

ALL = "all"
"""The key of what every attempt takes one of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A cell that waits to be tried. `keys` are the limits it counts against, beside the one for all."""

    cell: CellId
    flow: FlowId
    keys: tuple[str, ...] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """How an attempt ended, as far as it concerns the next ones. `retry_after_s` is what the provider asked for."""

    remedy: Remedy
    retry_after_s: float | None = None


@dataclass(slots=True)
class _Waiting:
    job: Job
    not_before_s: float


@dataclass(slots=True)
class Scheduler:
    """Limits by key; a key that has none is not limited."""

    limits: Mapping[str, int]
    backoff_s: float = 2.0
    start_interval_s: float = 0.0
    seed: int = 0
    _waiting: list[_Waiting] = field(default_factory=list)
    _taken: dict[str, int] = field(default_factory=dict)

    def add(self, job: Job, *, not_before_s: float = 0.0) -> None:
        """It waits from now on."""
        self._waiting.append(_Waiting(job, not_before_s))

    def start(self, now_s: float) -> Job | None:
        """The next that may run now; its places are taken. None where nothing may."""
        for at, waiting in enumerate(self._waiting):
            if waiting.not_before_s <= now_s and all(self._has_place(key) for key in (ALL, *waiting.job.keys)):
                for key in (ALL, *waiting.job.keys):
                    self._taken[key] = self._taken.get(key, 0) + 1
                return self._waiting.pop(at).job
        return None

    def wake_s(self, now_s: float) -> float | None:
        """When to ask again though nothing has ended; None where only an end can change anything."""
        later = [waiting.not_before_s for waiting in self._waiting if waiting.not_before_s > now_s]
        return min(later, default=None)

    def leave(self, job: Job) -> None:
        """Its agent is at rest: its places are free, whatever still has to be written."""
        for key in (ALL, *job.keys):
            self._taken[key] -= 1

    def ended(self, job: Job, after: After, *, tries: int, now_s: float) -> float | None:
        """What that teaches. When it is to be tried again, where it is; `tries` are its retries so far.

        Whoever asked adds it again. Its places must have been left.
        """
        return now_s + self.backoff_s * 2**tries if after.remedy is Remedy.AGAIN else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def picture(self, *, now_s: float, wall_ms: int) -> tuple[LiveLimit, ...]:
        """Of every limit, for people."""
        return tuple(
            LiveLimit(key=key, most=most, now=most, taken=self._taken.get(key, 0)) for key, most in self.limits.items()
        )

    def _has_place(self, key: str) -> bool:
        return key not in self.limits or self._taken.get(key, 0) < self.limits[key]
