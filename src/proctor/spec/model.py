"""What a user asks for: missions, flows and limits, as the YAML spells them."""

from enum import StrEnum
from typing import Any

import msgspec

from proctor.ids import FlowId, MissionId, StrategyId


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Root of all spec structs: unknown keys are errors."""


class Isolation(StrEnum):
    SHARED = "shared"  # many sessions in one runtime process
    PROCESS = "process"  # one process an attempt


class Sandbox(StrEnum):
    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    DANGER_FULL_ACCESS = "danger-full-access"


class Approvals(StrEnum):
    """How the agent's questions are answered. `deny` lets it ask, so that a denial is evidence."""

    DENY = "deny"
    ACCEPT = "accept"


class Login(StrEnum):
    NONE = "none"
    API_KEY = "api-key"


class Verified(StrEnum):
    """What a probe established. `unknown` is a value."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class ExpectSpec(Spec):
    """What the spec's author says will come out; the run exits 0 when every cell meets it."""

    verified: Verified | None = None
    outcome: str | None = None
    answer: str | None = None


class HeadlessRun(Spec, tag_field="kind", tag="headless_run"):
    """Runs a command in a copy of the workspace. A list is argv; a string is given to `bash -c`."""

    command: list[str] | str
    stdout: str | None = None
    exit: int = 0
    timeout: str = "30s"


ProbeSpec = HeadlessRun


class WorkspaceSpec(Spec):
    """Where an attempt works: a copy of a folder, or an empty one."""

    copy: str | None = None


class MissionSpec(Spec):
    """One task for an agent."""

    id: MissionId
    prompt: str
    workspace: WorkspaceSpec = WorkspaceSpec()
    probes: list[ProbeSpec] = []
    script: str | None = None
    expect: ExpectSpec = ExpectSpec()


class ModelSpec(Spec):
    """Which model answers. `scripted` plays the mission's script on loopback."""

    provider: str = "scripted"
    name: str | None = None
    base_url: str | None = None


class FlowSpec(Spec):
    """One configuration under comparison."""

    id: FlowId
    runtime: list[StrategyId]
    isolation: Isolation = Isolation.SHARED
    sandbox: Sandbox = Sandbox.WORKSPACE_WRITE
    approvals: Approvals = Approvals.DENY
    model: ModelSpec | None = None
    login: Login | None = None
    options: dict[StrategyId, dict[str, Any]] = {}
    env: dict[str, str] = {}


class LimitsSpec(Spec):
    """Three clocks always run. Durations are `90s`, `2m`, `500ms` or plain seconds."""

    attempt: str | int | float = "300s"
    turn: str | int | float = "180s"
    stall: str | int | float = "60s"


class ScheduleSpec(Spec):
    parallel: int = 4


class CampaignSpec(Spec):
    """A whole spec file."""

    version: int
    campaign: str
    missions: list[MissionSpec]
    flows: list[FlowSpec]
    model: ModelSpec = ModelSpec()
    login: Login = Login.NONE
    repeats: int = 1
    limits: LimitsSpec = LimitsSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    secrets: list[str] = []
