"""What a report needs of plan.json: its flows and gates, and not its many trials."""

from functools import lru_cache

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.reader import read_artifact
from proctor.ids import Digest, FlowId, RuntimeId
from proctor.plan.progress import RetryBudget
from proctor.spec.campaign_options import GatesSpec, SelectSpec, ToolsSpec


class PlannedModel(msgspec.Struct, frozen=True):
    """Whose tokens were used."""

    provider: str
    name: str | None


class PlannedFlow(msgspec.Struct, frozen=True):
    """A flow, and what it may use."""

    id: FlowId
    runtime: tuple[RuntimeId, ...]
    model: PlannedModel
    tools: ToolsSpec


class PlannedSchedule(msgspec.Struct, frozen=True, rename="camel"):
    """How often a trial is tried before its last failure stands, how long is waited, and how dear all may be."""

    retries: int
    mission_ms: int | None
    longest_wait_ms: int
    usd: float | None


class PlanSummary(msgspec.Struct, frozen=True, rename="camel"):
    """The plan without its trials."""

    flows: tuple[PlannedFlow, ...]
    campaign: str
    digest: Digest
    gates: GatesSpec
    schedule: PlannedSchedule
    is_canary: bool

    @property
    def retry_budget(self) -> RetryBudget:
        return RetryBudget(retries=self.schedule.retries, mission_ms=self.schedule.mission_ms)


class _PlanFile(msgspec.Struct, frozen=True):
    plan: PlanSummary


class _Given(msgspec.Struct, frozen=True):
    """`given` of index.json, which leaves out what has its default."""

    select: SelectSpec = SelectSpec()


class _Frozen(msgspec.Struct, frozen=True):
    given: _Given


def read_selection(campaign: CampaignPaths) -> SelectSpec | None:
    """Which of the spec's missions the command that began it chose; None where that cannot be read."""
    try:
        return read_artifact(campaign.snapshot_index, _Frozen).given.select
    except EvidenceError:  # check_campaign reports it
        return None


def read_plan(campaign: CampaignPaths) -> PlanSummary:
    """EvidenceError where there is none to read."""
    try:
        found = campaign.plan.lstat()
    except OSError:
        return read_artifact(campaign.plan, _PlanFile).plan
    return _read_plan(campaign, (found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=1)
def _read_plan(campaign: CampaignPaths, _: tuple[int, int, int]) -> PlanSummary:
    """A command asks for it more than once, and of ten thousand trials it has megabytes."""
    return read_artifact(campaign.plan, _PlanFile).plan
