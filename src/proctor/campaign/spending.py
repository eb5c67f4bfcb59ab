"""What a campaign has cost and may cost: the tokens of its attempts at the prices of their models."""

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
"""What so many tokens of a flow's model cost; None where that is not known."""


def prices_of(loaded: LoadedSpec) -> UsdOf:
    """By the price file of a spec, if it names one."""
    models = {flow.id: flow.model or loaded.spec.model for flow in loaded.spec.flows}

    def priced(flow: FlowId, tokens: Tokens | None) -> float | None:
        if (model := models.get(flow)) is None:
            return None
        return usd_of(loaded.prices, provider=model.provider, name=model.name, tokens=tokens)

    return priced


@dataclass(slots=True, kw_only=True)
class Spending:
    """`settled_usd` is what attempts cost that are over, in this run and those before; unknown costs are in no sum."""

    usd_of: UsdOf
    most_usd: float | None
    settled_usd: float = 0.0
    unknown: int = 0  # attempts that are over, in any run, whose cost nobody knows
    _running: dict[AttemptId, float] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent, what is running counted as far as it has told. Nought is a budget."""
        return self.most_usd is not None and self.settled_usd + sum(self._running.values()) >= self.most_usd

    def told(self, attempt: AttemptId, usd: float | None) -> None:
        """One that runs has cost so much until now."""
        if usd is not None:
            self._running[attempt] = usd

    def settle(self, attempt: AttemptId, flow: FlowId, tokens: Tokens | None) -> float | None:
        """What one cost that is over: by its tokens, or where they are not known by what it told as it ran."""
        told = self._running.pop(attempt, None)
        usd = self.usd_of(flow, tokens)
        usd = told if usd is None else usd
        self.settled_usd += usd or 0.0
        self.unknown += usd is None
        return usd

    def warnings(self) -> Iterator[str]:
        """What the budget could not be held to."""
        if self.most_usd is not None and self.unknown:
            yield f"what {self.unknown} attempts cost is not known, so the budget did not count them"

    def watcher(self, flow: FlowId, inner: Watcher) -> Watcher:
        """Who is to see an attempt, so that its cost is known while it runs; where nothing depends on that, `inner`."""
        return inner if self.most_usd is None else _Meter(self, flow, inner)


class _Meter(Watcher):
    def __init__(self, spending: Spending, flow: FlowId, inner: Watcher) -> None:
        self._spending = spending
        self._flow = flow
        self._inner = inner
        self._usage = UsageFold()

    def entered(self, attempt: AttemptId, state: State) -> None:
        self._inner.entered(attempt, state)

    def saw(self, attempt: AttemptId, event: Event) -> None:
        self._inner.saw(attempt, event)
        if isinstance(event, TurnBegan | UsageReported):
            self._usage.feed(event)
            self._spending.told(attempt, self._spending.usd_of(self._flow, self._usage.tokens))
