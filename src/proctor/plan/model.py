"""What will run: cells, and the flows and limits they run under, with every default filled in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.ids import CellId, Digest, FlowId, MissionId, StrategyId
from proctor.spec.model import SCRIPTED, Approvals, Contain, Isolation, Login, Persistence, Profile, Sandbox, SecretFile


class Planned(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Root of all plan structs."""


class Limits(Planned, frozen=True, kw_only=True):
    """The three clocks."""

    attempt_ms: int
    turn_ms: int
    stall_ms: int


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Digests of what lies outside the spec, keyed by path as the spec spells it."""

    scripts: Mapping[str, Digest]
    workspaces: Mapping[str, Digest]
