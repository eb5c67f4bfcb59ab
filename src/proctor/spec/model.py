"""Structs of a spec: campaign, missions and flows."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from proctor.ids import FlowId, MissionId, RuntimeId, runtime_id_of
from proctor.spec.campaign_options import (
    GatesSpec,
    HooksSpec,
    KeepSpec,
    LimitsSpec,
    MissionsFolder,
    ScheduleSpec,
    SecretFile,
    SelectSpec,
    ToolsSpec,
)
from proctor.spec.choices import SCRIPTED, Approvals, Isolation, Login, Persistence, Profile, Sandbox
from proctor.spec.context_settings import ContextSettings
from proctor.spec.criterion import WaiverSpec
from proctor.spec.expect import ExpectSpec
from proctor.spec.fence import Contain
from proctor.spec.probes import ProbeSpec
from proctor.spec.struct import Spec, Text, Texts, by_runtime_id

GIT_KEY: Final = "git:"
COPY_KEY: Final = "copy:"
"""Beginnings of `WorkspaceSpec.key` for a repository, and for a folder without the paths in `exclude`."""


class WorkspaceSpec(Spec, frozen=True, kw_only=True):
    """`workspace`: where an attempt works: a copy of a folder, a private clone of a repository, or an empty folder."""

    copy: Text | None = None
    """Path of the folder to copy, relative to the spec's folder. Default: none."""

    exclude: Texts = []
    """Files and folders that the copy leaves out, as paths relative to the copied folder. Default: none."""

    git: Text | None = None
    """Path of the git repository to clone, relative to the spec's folder. Default: none."""

    ref: Text | None = None
    """Branch, tag or commit id to check out; required with `git`."""

    @property
    def key(self) -> str | None:
        """The key that equal workspaces share; None for an empty folder.

        >>> WorkspaceSpec(git="../mine", ref="v1").key
        'git:../mine@v1'
        >>> WorkspaceSpec(copy="tree", exclude=["a, b"]).key, WorkspaceSpec(copy="git:x").key
        ('copy:["tree","a, b"]', './git:x')
        """
        if self.git is not None:
            return f"{GIT_KEY}{self.git}@{self.ref}"
        if self.copy is None or not self.exclude:
            is_like_another = self.copy is not None and self.copy.startswith((GIT_KEY, COPY_KEY))
            return f"./{self.copy}" if is_like_another else self.copy
        return COPY_KEY + msgspec.json.encode([self.copy, *self.exclude]).decode()


class MissionTerms(Spec, frozen=True, kw_only=True):
    """The keys of a mission except `id` and `prompt`, as in the front matter of a mission file."""

    workspace: WorkspaceSpec = WorkspaceSpec()
    """Where the agent works. Default: an empty folder."""

    probes: list[ProbeSpec] = []
    """Checks that verify the result. Default: none, so that nothing is verified."""

    task_class: Text | None = None
    """The sort of task. The kinds of probe of this class are required: a kind that `probes` does not contain is added
    with the keys that proctor.toml has for it. Default: none."""

    protect: Texts = []
    """Globs of files that the agent must leave as they are: if one was changed, deleted or added, probes that run tests
    fail. Default: none."""

    overlay: Text | None = None
    """Path of a folder with hidden files, relative to the spec's folder. They are laid over the workspace when a probe
    runs, and no agent can see them. Default: none."""

    solution: Text | None = None
    """Path of a patch that solves the mission, relative to the spec's folder. Only `proctor probe check` applies it:
    the probes must then verify the workspace. Default: none."""

    cheats: Texts = []
    """Paths of patches that only pretend to solve the mission, relative to the spec's folder. Only `proctor probe
    check` applies them, each alone: the probes must verify none. Default: none."""

    waive: list[WaiverSpec] = []
    """Criteria that are not required this time, with who decided that and why. Default: none."""

    script: Text | None = None
    """Path of the scripted model's script, relative to the spec's folder; required if a flow uses that model. Default:
    none."""

    expect: ExpectSpec = ExpectSpec()
    """The result that the author expects. Default: nothing is expected."""

    tags: Texts = []
    """Words to select the mission by. Default: none."""

    priority: int = 0
    """Trials with a higher priority start first. Default 0."""

    hooks: HooksSpec | None = None
    """Commands around each attempt, in place of the campaign's hooks. Default: the campaign's."""


class MissionSpec(MissionTerms, frozen=True, kw_only=True):
    """One task for an agent."""

    id: MissionId
    """Id of the mission, unique in the campaign."""

    prompt: Text
    """The task, as the agent receives it."""


AUTO = RuntimeId("auto")
"""In a runtime chain, the placeholder for the default runtimes. It is not the id of a runtime."""


MAX_REPEATS = 1000


class ModelSpec(Spec, frozen=True, kw_only=True):
    """`model`: the model that answers."""

    provider: Text = SCRIPTED
    """Id of the provider. `scripted` plays the mission's script on loopback. Default `scripted`."""

    name: str | None = None
    """Name of the model; required for a real provider. Default: none."""

    base_url: str | None = None
    """Address of the provider. Default: the agent program's own."""


class FlowSpec(Spec, frozen=True, kw_only=True):
    """One configuration under comparison."""

    id: FlowId
    """Id of the flow, unique in the campaign."""

    runtime: Annotated[list[RuntimeId], Meta(min_length=1)]
    """Runtime chain: the first runtime that can be used is used. `auto` is replaced by the default runtimes, and the
    name of an agent, `codex` or `claude`, by its default runtime."""

    isolation: Isolation = Isolation.SHARED
    """Whether attempts share one agent process. Default `shared`."""

    sandbox: Sandbox = Sandbox.WORKSPACE_WRITE
    """The agent's own sandbox. Default `workspace-write`."""

    approvals: Approvals = Approvals.DENY
    """How the agent's requests for approval are answered. Default `deny`."""

    model: ModelSpec | None = None
    """The model. Default: the campaign's."""

    login: Login | None = None
    """Where the model's credential comes from. Default: the campaign's."""

    token: Text | SecretFile | None = None
    """For `login: token`, the variable or file that contains the token. Default: the campaign's."""

    profile: Profile = Profile.FRESH
    """Whose settings the agent uses. Default `fresh`."""

    persistence: Persistence = Persistence.EPHEMERAL
    """Whether the agent stores the thread. Default `ephemeral`."""

    contain: Contain = Contain.FENCED
    """Whether an agent without its own sandbox is fenced, and what judges agents is hidden. Default `fenced`."""

    options: dict[RuntimeId, dict[str, Any]] = {}
    """Options of a runtime, by runtime id. Default: none."""

    env: dict[str, str] = {}
    """Environment variables to set for the agent. Default: none."""

    forward: list[str] = []
    """Names of Proctor's environment variables to pass to the agent. Default: none."""

    priority: int = 0
    """Added to the priority of each mission. Default 0."""

    template: Text | None = None
    """Path of a prompt template, in place of the campaign's. Default: the campaign's."""

    tools: ToolsSpec = ToolsSpec()
    """Tool policy. Default: every tool call is allowed."""

    context: ContextSettings | None = None
    """The context engine: each attempt is then a session of one turn that starts empty. Default: none, also if
    proctor.toml has one for sessions."""

    def __post_init__(self) -> None:
        force_setattr(self, "runtime", [runtime_id_of(name) for name in self.runtime])
        force_setattr(self, "options", by_runtime_id(self.options))


class CampaignSpec(Spec, frozen=True, kw_only=True):
    """A whole spec file."""

    version: Literal[1]
    """Version of the format: 1."""

    campaign: str
    """Name of the campaign."""

    missions: Annotated[list[MissionSpec], Meta(min_length=1)] | MissionsFolder
    """The missions, or the folder that contains them."""

    flows: Annotated[list[FlowSpec], Meta(min_length=1)]
    """The flows."""

    model: ModelSpec = ModelSpec()
    """Model of the flows that name none. Default: the scripted model."""

    login: Login = Login.NONE
    """Login of the flows that name none. Default `none`."""

    token: Text | SecretFile | None = None
    """Token of the flows that name none: the variable or file that contains it. Default: none."""

    repeats: Annotated[int, Meta(ge=1, le=MAX_REPEATS)] = 1
    """How often each mission runs in each flow, 1 to 1000. Default 1."""

    limits: LimitsSpec = LimitsSpec()
    """Time, token and cost limits."""

    schedule: ScheduleSpec = ScheduleSpec()
    """How many attempts run at once, and when a trial is tried again."""

    secrets: list[str | SecretFile] = []
    """Variables and files whose values are masked in the evidence. Default: none."""

    select: SelectSpec = SelectSpec()
    """Which missions to run. Default: all."""

    template: Text | None = None
    """Path of the template that every prompt is inserted into. Default: none."""

    hooks: HooksSpec = HooksSpec()
    """Commands around each attempt. Default: none."""

    gates: GatesSpec = GatesSpec()
    """What the results must fulfil."""

    keep: KeepSpec = KeepSpec()
    """What a run keeps besides the evidence. Default: nothing."""

    prices: Text | None = None
    """Path of the price file, with the cost of tokens. Default: none."""
