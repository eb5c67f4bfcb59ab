"""What a campaign tells those who watch it, beside what each attempt tells."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor.attempt.model import AttemptResult, Watcher
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId, CampaignId, CellId, RunId, StrategyId


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A run has begun. `settled` of its cells have a result from runs before it; `due` is when those are tried again
    that wait for it since then.
    """

    campaign_id: CampaignId
    run_id: RunId
    paths: CampaignPaths
    cells: int
    settled: int
    due: Mapping[CellId, int] = field(default_factory=dict)


class CampaignWatcher(Watcher):
    """Does nothing by itself."""

    def began(self, began: Began) -> None:
        """Before the first attempt."""

    def claimed(self, attempt: AttemptId, *, strategy: StrategyId) -> None:
        """An attempt is about to begin."""

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        """What is rationed, whenever that has changed."""

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        """It is in the ledger. Its cell is tried again at `retry_at_ms`, where that is given, or has its result."""

    def ended(self, how: str) -> None:
        """The run is over: "done", or what kept it from going on."""
