"""What a report needs of plan.json: its flows and gates, and not its many cells."""

from functools import lru_cache

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.reader import read_artifact
from proctor.ids import Digest, FlowId, StrategyId
from proctor.plan.standing import Patience
from proctor.spec.running import GatesSpec, SelectSpec, ToolsSpec


class PlannedModel(msgspec.Struct, frozen=True):
    """Whose tokens were used."""

    provider: str
    name: str | None = None


class PlannedFlow(msgspec.Struct, frozen=True):
    """A flow, and what it may use."""

    id: FlowId
    runtime: tuple[StrategyId, ...]
    model: PlannedModel | None = None
    tools: ToolsSpec = ToolsSpec()


class PlannedSchedule(msgspec.Struct, frozen=True, rename="camel"):
    """How often a cell is tried before its last failure stands, how long is waited, and how dear all may be."""

    retries: int = 0
    mission_ms: int | None = None
    longest_wait_ms: int | None = None
    usd: float | None = None


class Planned(msgspec.Struct, frozen=True, rename="camel"):
    """What an older Proctor did not plan has the default of now."""

    flows: tuple[PlannedFlow, ...]
    campaign: str = ""
    digest: Digest = Digest("")
    gates: GatesSpec = GatesSpec()
    schedule: PlannedSchedule = PlannedSchedule()
    is_canary: bool = False

    @property
    def patience(self) -> Patience:
        return Patience(retries=self.schedule.retries, mission_ms=self.schedule.mission_ms)


class _PlanFile(msgspec.Struct, frozen=True):
    plan: Planned


class _Given(msgspec.Struct, frozen=True):
    select: SelectSpec = SelectSpec()


class _Frozen(msgspec.Struct, frozen=True):
    given: _Given = _Given()


def read_selection(campaign: CampaignPaths) -> SelectSpec:
    """Which of the spec's missions were chosen with the command that began it; an older Proctor did not keep it."""
    try:
        return read_artifact(campaign.snapshot_index, _Frozen).given.select
    except EvidenceError:  # told by whoever checks the snapshot
        return SelectSpec()


def read_plan(campaign: CampaignPaths) -> Planned:
    """EvidenceError where there is none to read."""
    try:
        found = campaign.plan.lstat()
    except OSError:
        return read_artifact(campaign.plan, _PlanFile).plan
    return _read_plan(campaign, (found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=1)
def _read_plan(campaign: CampaignPaths, _: tuple[int, int, int]) -> Planned:
    """A command asks for it more than once, and of ten thousand cells it has megabytes."""
    return read_artifact(campaign.plan, _PlanFile).plan
