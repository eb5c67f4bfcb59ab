"""What will run: cells, and the flows and limits they run under, with every default filled in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.ids import CellId, Digest, FlowId, MissionId, StrategyId
from proctor.spec.model import SCRIPTED, Approvals, Contain, Isolation, Login, Persistence, Profile, Sandbox, SecretFile
from proctor.spec.running import GatesSpec, ToolsSpec


class Planned(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Root of all plan structs."""


class Limits(Planned, frozen=True, kw_only=True):
    """The three clocks over an attempt, and the tokens it may use."""

    attempt_ms: int
    turn_ms: int
    stall_ms: int
    tokens: int | None = None


class Schedule(Planned, frozen=True, kw_only=True):
    """How many at a time, how often again, how long and how dear in all. It decides when a cell runs, never how."""

    parallel: int
    strategies: dict[StrategyId, int]
    providers: dict[str, int]
    per_credential: int | None
    start_interval_ms: int
    retries: int
    backoff_ms: int
    longest_wait_ms: int
    mission_ms: int | None
    campaign_ms: int | None
    usd: float | None


class ResolvedModel(Planned, frozen=True, kw_only=True):
    """The model that answers; `name` is None where the provider or the runtime chooses."""

    provider: str
    name: str | None
    base_url: str | None

    @property
    def is_scripted(self) -> bool:
        return self.provider == SCRIPTED


class ResolvedFlow(Planned, frozen=True, kw_only=True):
    """A flow that no longer depends on the campaign's defaults."""

    id: FlowId
    runtime: tuple[StrategyId, ...]
    isolation: Isolation
    sandbox: Sandbox
    approvals: Approvals
    model: ResolvedModel
    login: Login
    token: str | SecretFile | None
    profile: Profile
    persistence: Persistence
    contain: Contain
    options: dict[StrategyId, dict[str, Any]]
    env: dict[str, str]
    forward: tuple[str, ...]
    tools: ToolsSpec


class Cell(Planned, frozen=True, kw_only=True):
    """One mission × flow × repeat. The digest covers all that decides what runs; the id can name a folder."""

    id: CellId
    mission: MissionId
    flow: FlowId
    repeat: int
    digest: Digest


class Plan(Planned, frozen=True, kw_only=True):
    """Everything a campaign will do. Equal digests mean the same work."""

    campaign: str
    digest: Digest
    flows: tuple[ResolvedFlow, ...]
    limits: Limits
    cells: tuple[Cell, ...]
    schedule: Schedule
    gates: GatesSpec
    is_canary: bool = False  # a trial of a few missions, never the campaign itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Digests of what lies outside the spec, keyed by path as the spec spells it."""

    scripts: Mapping[str, Digest]
    workspaces: Mapping[str, Digest]
