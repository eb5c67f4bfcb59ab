"""The parts of plan.json and of the frozen spec that a report needs: flows and gates, not the many trials."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.reader import decode_artifact, read_bytes
from proctor.ids import CampaignId, Digest, FlowId, RuntimeId
from proctor.plan.progress import RetryBudget
from proctor.spec.campaign_options import GatesSpec, SelectSpec, ToolsSpec

ReadFile = Callable[[Path], bytes]
"""Reads a whole file. Raises EvidenceError."""


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


class _PlanFile(msgspec.Struct, frozen=True, rename="camel"):
    plan: PlanSummary
    schema_version: Literal[1] = 1


class _Given(msgspec.Struct, frozen=True):
    """`given` of index.json, which leaves out what has its default."""

    select: SelectSpec = SelectSpec()
    failed_in: CampaignId | None = None


class SnapshotIndex(msgspec.Struct, frozen=True, rename="camel"):
    """index.json of the frozen spec, as far as a report needs it."""

    schema_version: Literal[1] = 1
    """Version of the file format."""
    spec: Digest | None = None
    """Digest of the spec file."""
    files: dict[str, Digest] = {}
    """Digest of each file that the spec names."""
    names: dict[str, str] = {}
    """Name in spec.snapshot of each of these files."""
    workspaces: dict[str, Digest] = {}
    """Digest of each workspace, by its key in the spec."""
    overlays: dict[str, Digest] = {}
    """Digest of each folder with hidden files, by its path in the spec."""
    given: _Given | None = None

    @property
    def selected(self) -> SelectSpec | None:
        """Which missions the command selected; None if unknown."""
        return None if self.given is None else self.given.select

    @property
    def failed_in(self) -> CampaignId | None:
        """The campaign whose failed trials are the only ones here; None for any other campaign, or if unknown."""
        return None if self.given is None else self.given.failed_in


def read_frozen(campaign: CampaignPaths, *, read: ReadFile = read_bytes) -> SnapshotIndex:
    """Read index.json. What cannot be read is empty: check_campaign reports it."""
    path = campaign.snapshot_index
    try:
        return decode_artifact(read(path), SnapshotIndex, file=path.name)
    except EvidenceError:
        return SnapshotIndex()


def read_plan(campaign: CampaignPaths) -> PlanSummary:
    """Read the plan without its trials. Raises EvidenceError."""
    return _decode_plan(read_plan_bytes(campaign), campaign.plan.name)


def read_plan_bytes(campaign: CampaignPaths) -> bytes:
    """Read plan.json, once per command: with ten thousand trials it has megabytes. Raises EvidenceError."""
    try:
        found = campaign.plan.lstat()
    except OSError:
        return read_bytes(campaign.plan)
    # The time of the last change of the inode cannot be set back, as the others can.
    return _read_version(campaign.plan, (found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=1)
def _read_version(path: Path, _: tuple[int, int, int, int]) -> bytes:
    return read_bytes(path)


@lru_cache(maxsize=1)
def _decode_plan(data: bytes, file: str) -> PlanSummary:
    return decode_artifact(data, _PlanFile, file=file).plan
