"""A campaign for which time passes when something happens."""

from dataclasses import dataclass, field

from proctor.attempt.model import AttemptResult
from proctor.campaign.live import LiveView
from proctor.clock import SystemClock
from proctor.evidence.live import Live, LiveLimit
from proctor.ids import AttemptId, RuntimeId
from proctor.report.format_values import describe_call


class JumpingClock(SystemClock):
    """The machine's own, later by what it has jumped."""

    jumped_s = 0.0

    def steady_s(self) -> float:
        return super().steady_s() + self.jumped_s

    def wall_ms(self) -> int:
        return super().wall_ms() + round(1000 * self.jumped_s)


@dataclass(slots=True, kw_only=True)
class Looking(LiveView):
    """Keeps each picture that was taken when something was told of limits, and in what order attempts came.

    `first_s` pass after the first picture, and after each attempt what its trial waits for: `pauses_ms`, by attempt.
    """

    clock: JumpingClock = field(default_factory=JumpingClock)
    first_s: float = 0.0
    seen: list[Live] = field(default_factory=list)
    order: list[AttemptId] = field(default_factory=list)
    pauses_ms: dict[AttemptId, int | None] = field(default_factory=dict)

    def started(self, attempt: AttemptId, *, runtime_id: RuntimeId) -> None:
        LiveView.started(self, attempt, runtime_id=runtime_id)
        self.order.append(attempt)

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        LiveView.scheduled(self, limits, waiting=waiting)
        live = self.describe()
        assert live is not None
        self.seen.append(live)
        self.clock.jumped_s += self.first_s
        self.first_s = 0.0

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        LiveView.settled(self, result, usd=usd, retry_at_ms=retry_at_ms, is_settled=is_settled)
        pause_ms = None if retry_at_ms is None else retry_at_ms - self.clock.wall_ms()
        self.pauses_ms[result.attempt_id] = pause_ms
        self.clock.jumped_s += (pause_ms or 0) / 1000


def looking(*, first_s: float = 0.0) -> Looking:
    return Looking(describe_call=describe_call, first_s=first_s)
