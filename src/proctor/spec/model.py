"""What a user asks for: missions, flows and limits, as the YAML spells them."""

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from proctor.ids import FlowId, MissionId, StrategyId
from proctor.spec.expect import ExpectSpec
from proctor.spec.running import (
    GatesSpec,
    HooksSpec,
    LimitsSpec,
    MissionsFolder,
    ScheduleSpec,
    SelectSpec,
    ToolsSpec,
)
from proctor.spec.struct import Command, Duration, Spec, Text, Texts


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
    WORKSPACE = "workspace"  # accept what stays inside the workspace, deny the rest
    ASK = "ask"  # somebody decides, within a deadline; silence is a denial


class Login(StrEnum):
    """Where a real model's credential comes from."""

    NONE = "none"  # there is none, and the scripted model needs none
    API_KEY = "api-key"  # the provider's own variable in our environment
    INHERIT = "inherit"  # the user's own login to the agent program
    TOKEN = "token"  # noqa: S105 - the variable or file named under `token`


class Profile(StrEnum):
    """Whose settings, hooks and servers the agent runs with."""

    FRESH = "fresh"  # a home of its own with ours alone
    MINE = "mine"  # the user's own home and all that is in it


class Persistence(StrEnum):
    """Whether the agent keeps the thread, so that it can be read back and taken up again."""

    EPHEMERAL = "ephemeral"
    PERSISTENT = "persistent"


class Network(StrEnum):
    """What a contained process can reach. Loopback is up either way, its own or the machine's."""

    NONE = "none"
    HOST = "host"


class Contain(StrEnum):
    """Whether a process sees the machine through fences. `none` leaves files and network open to it."""

    FENCED = "fenced"
    NONE = "none"


class Probing(Spec, frozen=True, kw_only=True):
    """What all kinds of probe share: how the processes of one are contained."""

    contain: Contain = Contain.FENCED
    network: Network = Network.NONE


class HeadlessRun(Probing, tag_field="kind", tag="headless_run", frozen=True, kw_only=True):
    """Runs a command in a copy of the workspace. A list is argv; a string is given to `bash -c`."""

    command: Command
    stdout: str | None = None
    exit: Annotated[int, Meta(ge=0, le=255)] = 0
    timeout: Duration = "30s"


ProbeSpec: TypeAlias = HeadlessRun
"""The union of all kinds, told apart by `kind`: another kind is another `| Member`."""


class WorkspaceSpec(Spec, frozen=True, kw_only=True):
    """Where an attempt works: a copy of a folder, a private clone of a repository at a ref, or an empty folder."""

    copy: Text | None = None
    git: Text | None = None
    ref: Text | None = None

    @property
    def key(self) -> str | None:
        """One name for equal workspaces; None for an empty one.

        >>> WorkspaceSpec(git="../mine", ref="v1").key
        'git:../mine@v1'
        """
        return self.copy if self.git is None else f"git:{self.git}@{self.ref}"


class MissionTerms(Spec, frozen=True, kw_only=True):
    """All of a mission but its name and its prompt: what the front matter of a mission's file may say."""

    workspace: WorkspaceSpec = WorkspaceSpec()
    probes: list[ProbeSpec] = []
    script: Text | None = None
    expect: ExpectSpec = ExpectSpec()
    tags: Texts = []
    priority: int = 0
    hooks: HooksSpec | None = None  # instead of the campaign's


class MissionSpec(MissionTerms, frozen=True, kw_only=True):
    """One task for an agent."""

    id: MissionId
    prompt: Text


SCRIPTED = "scripted"

AUTO = StrategyId("auto")
"""In a chain: whichever default lane is there. It is no strategy itself."""


class ModelSpec(Spec, frozen=True, kw_only=True):
    """Which model answers. `scripted` plays the mission's script on loopback."""

    provider: Text = SCRIPTED
    name: str | None = None
    base_url: str | None = None


class SecretFile(Spec, frozen=True, kw_only=True):
    """A credential file: one secret, or JSON or lines of NAME=value, of which those named like a secret are."""

    file: Text


class FlowSpec(Spec, frozen=True, kw_only=True):
    """One configuration under comparison."""

    id: FlowId
    runtime: Annotated[list[StrategyId], Meta(min_length=1)]
    isolation: Isolation = Isolation.SHARED
    sandbox: Sandbox = Sandbox.WORKSPACE_WRITE
    approvals: Approvals = Approvals.DENY
    model: ModelSpec | None = None
    login: Login | None = None
    token: Text | SecretFile | None = None
    profile: Profile = Profile.FRESH
    persistence: Persistence = Persistence.EPHEMERAL
    contain: Contain = Contain.FENCED
    options: dict[StrategyId, dict[str, Any]] = {}
    env: dict[str, str] = {}
    forward: list[str] = []
    priority: int = 0
    template: Text | None = None  # instead of the campaign's
    tools: ToolsSpec = ToolsSpec()


class CampaignSpec(Spec, frozen=True, kw_only=True):
    """A whole spec file."""

    version: Literal[1]
    campaign: str
    missions: Annotated[list[MissionSpec], Meta(min_length=1)] | MissionsFolder
    flows: Annotated[list[FlowSpec], Meta(min_length=1)]
    model: ModelSpec = ModelSpec()
    login: Login = Login.NONE
    token: Text | SecretFile | None = None
    repeats: Annotated[int, Meta(ge=1, le=1000)] = 1
    limits: LimitsSpec = LimitsSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    secrets: list[str | SecretFile] = []
    select: SelectSpec = SelectSpec()
    template: Text | None = None  # a file: the prompt of every mission goes through it
    hooks: HooksSpec = HooksSpec()
    gates: GatesSpec = GatesSpec()
    prices: Text | None = None  # a file: what tokens cost, and since when
