"""The plan of a campaign: its trials, flows, limits and schedule, with every default filled in."""

from typing import Any

import msgspec

from proctor.ids import Digest, FlowId, MissionId, RuntimeId, TrialId
from proctor.spec.campaign_options import GatesSpec, SecretFile, ToolsSpec
from proctor.spec.choices import SCRIPTED, Approvals, Isolation, Login, Persistence, Profile, Sandbox
from proctor.spec.context_settings import ContextSettings
from proctor.spec.fence import Contain


class PlanStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base class of all plan structs."""


class Limits(PlanStruct, frozen=True, kw_only=True):
    """The limits of an attempt."""

    attempt_ms: int
    """Longest duration of the attempt, in milliseconds."""

    turn_ms: int
    """Longest duration of a turn, in milliseconds."""

    stall_ms: int
    """Longest time without anything from the agent, in milliseconds."""

    tokens: int | None = None
    """Most tokens, together with the attempts that it continues; None for no limit."""

    evidence_bytes: int = 1024**3
    """Most evidence, in bytes."""


class Schedule(PlanStruct, frozen=True, kw_only=True):
    """When trials run: how many at once, how often again, and the limits of the campaign. Apart from
    `continue_after_wait`, it does not affect how a trial runs."""

    parallel: int
    """Most attempts at once."""

    runtimes: dict[RuntimeId, int]
    """Most attempts at once, by runtime id."""

    providers: dict[str, int]
    """Most attempts at once, by model provider."""

    per_credential: int | None
    """Most attempts at once with the same credential; None for no limit."""

    start_interval_ms: int
    """Shortest time between two starts, in milliseconds."""

    retries: int
    """Most retries of a trial."""

    backoff_ms: int
    """Pause before the first retry, in milliseconds; it doubles with each further one."""

    longest_wait_ms: int
    """Longest wait for a quota to reset, in milliseconds."""

    mission_ms: int | None
    """Longest duration of all attempts of a trial, in milliseconds; None for no limit."""

    campaign_ms: int | None
    """Longest duration of the campaign, in milliseconds; None for no limit."""

    usd: float | None
    """Most US dollars that the campaign may cost; None for no limit."""

    continue_after_wait: bool = False
    """Whether an attempt that ended in a rate limit or an exhausted quota is continued by the next one."""


class ResolvedModel(PlanStruct, frozen=True, kw_only=True):
    """The model that answers."""

    provider: str
    """Id of the provider."""

    name: str | None
    """Name of the model; None if the provider or the runtime chooses."""

    base_url: str | None
    """Address of the provider; None for the agent program's own."""

    @property
    def is_scripted(self) -> bool:
        """Whether it is the scripted model."""
        return self.provider == SCRIPTED


class ResolvedFlow(PlanStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A flow that no longer depends on the campaign's defaults."""

    id: FlowId
    """Id of the flow."""

    runtime: tuple[RuntimeId, ...]
    """Runtime chain."""

    isolation: Isolation
    """Whether attempts share one agent process."""

    sandbox: Sandbox
    """The agent's own sandbox."""

    approvals: Approvals
    """How the agent's requests for approval are answered."""

    model: ResolvedModel
    """The model."""

    login: Login
    """Where the model's credential comes from."""

    token: str | SecretFile | None
    """The variable or file that contains the token of `login: token`."""

    profile: Profile
    """Whose settings the agent uses."""

    persistence: Persistence
    """Whether the agent stores the thread."""

    contain: Contain
    """Whether an agent without its own sandbox is fenced."""

    options: dict[RuntimeId, dict[str, Any]]
    """Options of a runtime, by runtime id."""

    env: dict[str, str]
    """Environment variables to set for the agent."""

    forward: tuple[str, ...]
    """Names of Proctor's environment variables to pass to the agent."""

    tools: ToolsSpec
    """Tool policy."""

    context: ContextSettings | None = None
    """The context engine. Absent from a flow without one, whose digest does not depend on this field."""


class Trial(PlanStruct, frozen=True, kw_only=True):
    """One mission × flow × repeat."""

    id: TrialId
    """Id of the trial, `MISSION.FLOW.rREPEAT`; it is a valid name of a folder."""

    mission: MissionId
    """Id of the mission."""

    flow: FlowId
    """Id of the flow."""

    repeat: int
    """Number of the repeat, from 1."""

    digest: Digest
    """Digest of everything that affects how the trial runs."""


class Plan(PlanStruct, frozen=True, kw_only=True):
    """Everything that a campaign will do. Plans with equal digests are the same work."""

    campaign: str
    """Name of the campaign."""

    digest: Digest
    """Digest of the name and the trials."""

    flows: tuple[ResolvedFlow, ...]
    """The flows."""

    limits: Limits
    """The limits of each attempt."""

    trials: tuple[Trial, ...]
    """The trials, in the order in which they start."""

    schedule: Schedule
    """When trials run."""

    gates: GatesSpec
    """What the results must fulfil."""

    is_canary: bool = False
    """Whether it is a canary: a sample run of a few missions."""
