"""What a campaign tells those who watch it, beside what each attempt tells."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor.attempt.model import AttemptResult, Watcher
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId, CampaignId, RunId, RuntimeId, TrialId


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """A run has begun. `settled` of its trials have a result from runs before it; `due` is when those are tried again
    that wait for it since then.
    """

    campaign_id: CampaignId
    run_id: RunId
    paths: CampaignPaths
    trials: int
    settled: int
    due: Mapping[TrialId, int] = field(default_factory=dict)


class CampaignWatcher(Watcher):
    """Does nothing by itself."""

    def began(self, began: RunStart) -> None:
        """Before the first attempt."""

    def started(self, attempt: AttemptId, *, runtime_id: RuntimeId) -> None:
        """An attempt is about to begin."""

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        """What is rationed, whenever that has changed."""

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        """It is in the ledger. Its trial is tried again at `retry_at_ms`, where that is given, or has its result."""

    def ended(self, how: str) -> None:
        """The run is over: "done", or what kept it from going on."""
