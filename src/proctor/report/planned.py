"""The parts of plan.json and of the frozen spec that a report needs: flows and gates, not the many trials."""

from functools import lru_cache

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.reader import read_artifact
from proctor.ids import Digest, FlowId, RuntimeId
from proctor.plan.progress import RetryBudget
from proctor.spec.campaign_options import GatesSpec, SelectSpec, ToolsSpec


class PlannedModel(msgspec.Struct, frozen=True):
    """The model of a flow."""

    provider: str
    """Name of the provider."""
    name: str | None
    """Name of the model; null for the agent's own default."""


class PlannedFlow(msgspec.Struct, frozen=True):
    """A flow."""

    id: FlowId
    """Id of the flow."""
    runtime: tuple[RuntimeId, ...]
    """Its runtime chain."""
    model: PlannedModel
    """Its model."""
    tools: ToolsSpec
    """Its tool policy."""


class PlannedSchedule(msgspec.Struct, frozen=True, rename="camel"):
    """Limits on retries, waits and cost."""

    retries: int
    """Retries of a trial."""
    mission_ms: int | None
    """Time for all attempts of a trial, in milliseconds; null for no limit."""
    longest_wait_ms: int
    """Longest wait before a retry, in milliseconds."""
    usd: float | None
    """Limit on the cost of the campaign, in US dollars; null for no limit."""


class PlanSummary(msgspec.Struct, frozen=True, rename="camel"):
    """The plan without its trials."""

    flows: tuple[PlannedFlow, ...]
    """The flows."""
    campaign: str
    """Name of the campaign."""
    digest: Digest
    """Digest of the plan."""
    gates: GatesSpec
    """The gates."""
    schedule: PlannedSchedule
    """Limits on retries, waits and cost."""
    is_canary: bool
    """Whether this is a canary."""

    @property
    def retry_budget(self) -> RetryBudget:
        return RetryBudget(retries=self.schedule.retries, mission_ms=self.schedule.mission_ms)


class _PlanFile(msgspec.Struct, frozen=True):
    plan: PlanSummary


class _Given(msgspec.Struct, frozen=True):
    """`given` of index.json, which leaves out what has its default."""

    select: SelectSpec = SelectSpec()


class SnapshotIndex(msgspec.Struct, frozen=True):
    """index.json of the frozen spec, as far as a report needs it."""

    spec: Digest | None = None
    """Digest of the spec file."""
    files: dict[str, Digest] = {}
    """Digest of each file that the spec names."""
    names: dict[str, str] = {}
    """Name in spec.snapshot of each of these files."""
    given: _Given | None = None

    @property
    def selected(self) -> SelectSpec | None:
        """Which missions the command selected; None if unknown."""
        return None if self.given is None else self.given.select


def read_frozen(campaign: CampaignPaths) -> SnapshotIndex:
    """Read index.json. What cannot be read is empty: check_campaign reports it."""
    try:
        return read_artifact(campaign.snapshot_index, SnapshotIndex)
    except EvidenceError:
        return SnapshotIndex()


def read_plan(campaign: CampaignPaths) -> PlanSummary:
    """Read the plan without its trials. Raises EvidenceError."""
    try:
        found = campaign.plan.lstat()
    except OSError:
        return read_artifact(campaign.plan, _PlanFile).plan
    return _read_plan(campaign, (found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=1)
def _read_plan(campaign: CampaignPaths, _: tuple[int, int, int]) -> PlanSummary:
    """Read it once per command: with ten thousand trials it has megabytes."""
    return read_artifact(campaign.plan, _PlanFile).plan
