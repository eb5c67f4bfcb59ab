"""The cost of a campaign against its budget: the tokens of its attempts at the prices of their models."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from proctor.attempt.machine import State
from proctor.attempt.model import Watcher
from proctor.event.model import Event, Tokens, TurnBegan, UsageReported
from proctor.event.usage import UsageFold
from proctor.ids import AttemptId, FlowId
from proctor.spec.load import LoadedSpec
from proctor.spec.prices import usd_of

UsdOf = Callable[[FlowId, Tokens | None], float | None]
"""Returns what tokens of a flow's model cost in USD; None if that is not known."""


def prices_of(loaded: LoadedSpec) -> UsdOf:
    """Return the price function of a spec, from its price file if it names one."""
    models = {flow.id: flow.model or loaded.spec.model for flow in loaded.spec.flows}

    def priced(flow: FlowId, tokens: Tokens | None) -> float | None:
        if (model := models.get(flow)) is None:
            return None
        return usd_of(loaded.prices, provider=model.provider, name=model.name, tokens=tokens)

    return priced


@dataclass(slots=True, kw_only=True)
class Spending:
    """Sums the known cost of attempts. Attempts of unknown cost are counted separately."""

    usd_of: UsdOf
    most_usd: float | None
    """The budget; None means no budget, 0 is a budget."""
    settled_usd: float = 0.0
    """Known cost of the attempts that are over, in this run and earlier ones."""
    unknown: int = 0
    """Attempts that are over, in this run and earlier ones, whose cost is not known."""
    _running: dict[AttemptId, float] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent, including what running attempts have reported so far."""
        return self.most_usd is not None and self.settled_usd + sum(self._running.values()) >= self.most_usd

    def update_running(self, attempt: AttemptId, usd: float | None) -> None:
        """Note what a running attempt has cost so far. None is ignored."""
        if usd is not None:
            self._running[attempt] = usd

    def settle(self, attempt: AttemptId, flow: FlowId, tokens: Tokens | None) -> float | None:
        """Return the cost of an attempt that is over: from its tokens, or else what it last reported while running."""
        reported_usd = self._running.pop(attempt, None)
        usd = self.usd_of(flow, tokens)
        usd = reported_usd if usd is None else usd
        self.settled_usd += usd or 0.0
        self.unknown += usd is None
        return usd

    def warnings(self) -> Iterator[str]:
        """Yield a warning if there is a budget and the cost of some attempts is not known."""
        if self.most_usd is not None and self.unknown:
            yield f"the budget does not include {self.unknown} attempts whose cost is not known"

    def watcher(self, flow: FlowId, inner: Watcher) -> Watcher:
        """Return a watcher that also follows the cost of a running attempt; `inner` itself if there is no budget."""
        return inner if self.most_usd is None else _Meter(self, flow, inner)


class _Meter(Watcher):
    def __init__(self, spending: Spending, flow: FlowId, inner: Watcher) -> None:
        self._spending = spending
        self._flow = flow
        self._inner = inner
        self._usage = UsageFold()

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        self._inner.state_entered(attempt, state)

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        self._inner.event_recorded(attempt, event)
        if isinstance(event, TurnBegan | UsageReported):
            self._usage.feed(event)
            self._spending.update_running(attempt, self._spending.usd_of(self._flow, self._usage.tokens))
