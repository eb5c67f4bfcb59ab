"""The watcher of a campaign: what is reported in addition to the events of each attempt."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor.attempt.model import AttemptResult, Watcher
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId, CampaignId, RunId, RuntimeId, TrialId


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """The start of a run."""

    campaign_id: CampaignId
    run_id: RunId
    paths: CampaignPaths
    trials: int
    settled: int
    """Trials that have a result from an earlier run."""
    due: Mapping[TrialId, int] = field(default_factory=dict)
    """When the trials that wait since an earlier run are tried again (wall clock, ms)."""


class CampaignWatcher(Watcher):
    """Base class of watchers. Each method is called when something happens, and does nothing by default."""

    def began(self, began: RunStart) -> None:
        """Called before the first attempt."""

    def probes_checked(self, done: int, *, of: int) -> None:
        """Called before the run begins, while its probes are checked on the untouched workspaces."""

    def started(self, attempt: AttemptId, *, runtime_id: RuntimeId) -> None:
        """Called before an attempt begins."""

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        """Called when the limits or the number of waiting trials have changed."""

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        """Called when an attempt is in the ledger. `retry_at_ms` is when its trial is retried, if it is."""

    def ended(self, how: str) -> None:
        """Called when the run is over. `how` is "done", or why it ended early."""
