"""The request for one attempt, and its result."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from proctor.attempt.machine import State
from proctor.attempt.watchdog import ClockName
from proctor.clock import Clock
from proctor.contain.intent import IntentLog
from proctor.contain.ladder import Containment
from proctor.context.engine_use import EngineUse
from proctor.context.keeper import SessionKeeper
from proctor.errors import ProctorError
from proctor.event.model import Event
from proctor.event.row import ASKED_TO_STOP, CancelRequested
from proctor.evidence.artifacts import ContextRef, ContinuedFrom, RequiredProbe, SittingRef
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.secrets import Secret
from proctor.evidence.summary import AttemptSummary
from proctor.fact import Fact
from proctor.ids import AttemptId, CampaignId, Digest, ProcessId, RunId, ThreadId, TurnId
from proctor.plan.continuation import FreshStart
from proctor.plan.model import Limits, ResolvedFlow, Trial
from proctor.probe.kind import HiddenFiles
from proctor.probe.model import require
from proctor.runtime.base import Decide, Host, ModelChoice, Runtime, Tool
from proctor.spec.model import MissionSpec
from proctor.workspace.snapshot import Snapshot

CONTINUE_PROMPT: Final = (
    "You were interrupted because the model's provider refused more requests for a while. It accepts them again. "
    "Continue with the task where you stopped; everything that was asked before still applies.\n"
)
"""The prompt of an attempt that continues another one. The prompt of the mission is in the thread already."""

DECIDE_S = 120.0
"""Default time limit for a person's decision or a dynamic tool call, in seconds."""


def _do_nothing() -> None:
    """Default callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A place in a running agent process."""

    process: ProcessId
    """Id of the process."""
    host: Host
    """The process."""
    rows: Callable[[], int]
    """Returns the number of rows in the process's own record so far."""
    failure: Callable[[], ProctorError | None]
    """Returns why the process's own record could not be written. None if it could."""
    home: Path | None = None
    """The home folder of the process. A session has its own home there, named after its attempt, or uses this one."""


class Watcher:
    """Receives the states and events of attempts as they happen. This base class ignores them."""

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        """Called when the attempt has entered a state."""

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        """Called when an event of the attempt has been recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSitting:
    """The sitting of a session that stores its turns."""

    keeper: SessionKeeper
    """Stores the turns."""
    engine: EngineUse | None
    """The context engine. None if only the native thread remembers what was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """The attempt that an attempt continues, and what it left."""

    attempt: AttemptId
    """Id of that attempt."""
    taken: ContinuedFrom
    """What is taken over from it."""
    tree: Snapshot
    """The workspace that it left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRequest:
    """Everything that the supervisor needs for one attempt."""

    attempt_id: AttemptId
    """Id of the attempt, `<trial>.<n>`."""
    n: int
    """Number of this attempt among those of its trial. The first is 1."""
    campaign_id: CampaignId
    """Id of the campaign."""
    run_id: RunId
    """Id of the run."""
    plan_digest: Digest
    """Digest of the plan."""
    trial: Trial
    """The trial."""
    mission: MissionSpec
    """The mission, with the prompt for this flow."""
    flow: ResolvedFlow
    """The flow, with every default filled in."""
    limits: Limits
    """Clock limits in milliseconds, and the limits of tokens and evidence."""
    paths: AttemptPaths
    """The attempt's evidence folder."""
    scratch: Path
    """Folder for the workspace and temporary files. Created by the supervisor and removed at the end, unless
    `is_kept`."""
    judging: Path
    """Folder for copies and views of the workspace that the agent cannot see. Created if needed, removed at the end."""
    workspace_source: Path | None
    """Frozen folder that the workspace is copied from. None for an empty workspace."""
    workspace_digest: Digest
    """Expected digest of the untouched workspace."""
    runtime: Runtime
    """The runtime."""
    lease: Callable[[], AbstractAsyncContextManager[Lease]]
    """Opens a place in an agent process, which is returned when the context ends."""
    model: ModelChoice
    """The model and its provider."""
    script_misfit: Callable[[], str | None]
    """Returns why the scripted model cannot play its current step. None if it can, or if the model is not scripted."""
    secrets: tuple[Secret, ...]
    """Secrets to mask, including the tripwire."""
    containment: Containment
    """How processes are contained."""
    intents: IntentLog
    """Log of started processes, from which leftovers are found and killed."""
    clock: Clock
    """Source of wall-clock and monotonic time."""
    watcher: Watcher
    """Receives states and events."""
    hidden: tuple[Path, ...] = ()
    """Paths that a fenced probe must not see, in addition to those that are always hidden."""
    hidden_from_agent: tuple[Path, ...] = ()
    """Paths that a fenced agent must not see, in addition to those that are always hidden."""
    visible_to_agent: tuple[Path, ...] = ()
    """Paths in hidden folders that a fenced agent can read. They exist."""
    sources: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the spec that probes need, by their path as the spec has it."""
    hidden_files: HiddenFiles | None = None
    """Files that are laid over the workspace when a probe runs. None if the mission has none."""
    spec_folder: Path = Path()
    """Folder of the spec, in which the mission's hooks run."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """Facts known before the session, by name."""
    decide: Decide | None = None
    """Decides about approval requests. None if the flow never asks."""
    decide_deadline_s: float = DECIDE_S
    """Time limit for a decision, in seconds. After that the request is denied."""
    tools: tuple[Tool, ...] = ()
    """Dynamic tools that the agent may call."""
    tool_deadline_s: float = DECIDE_S
    """Time limit for a call of a dynamic tool, in seconds."""
    is_persistent: bool = False
    """Whether the agent stores the thread, so that it can be resumed."""
    sitting: SittingRef | None = None
    """Which sitting of which session the attempt is. None if it belongs to no session with an id."""
    kept: KeptSitting | None = None
    """What stores its turns. None if nothing does."""
    context: ContextRef | None = None
    """The context engine, as attempt.json names it. None without one."""
    refusal: ProctorError | None = None
    """Why the agent cannot be asked. The attempt then ends as refused. None if it can."""
    resume: ThreadId | None = None
    """Thread to continue. At most one of `resume` and `fork` is set. That of `continuation`, if there is one."""
    fork: ThreadId | None = None
    """Thread whose history a new thread starts with."""
    fork_through: TurnId | None = None
    """The last turn of the forked thread that the new one gets. None for all."""
    is_kept: bool = False
    """Whether `scratch` is kept for the next attempt, which may continue this one. It exists, and the caller removes
    it. It has a workspace only if there is a `continuation`."""
    continuation: Continuation | None = None
    """What the attempt continues. None if it starts fresh."""
    fresh_start: FreshStart | None = None
    """Why it does not continue the attempt of its trial before it. None if that is not asked for."""
    stop: anyio.Event = field(default_factory=anyio.Event)
    """Set to stop the attempt. It is then recorded as cancelled and sealed."""
    stop_cause: Callable[[], CancelRequested] = lambda: ASKED_TO_STOP
    """Returns why `stop` was set."""
    turn_over: Callable[[], None] = _do_nothing
    """Called when the turn has ended, by itself or not. A cause of a stop that comes later is not recorded."""
    is_scratch_kept: bool = False
    """Whether to keep `scratch` after the attempt."""
    keep_workspace: Path | None = None
    """Where the workspace that the agent left is moved once the attempt is sealed; None to remove it."""
    make_durable: Callable[[], Awaitable[None]] | None = None
    """Returns when everything written so far survives a power cut, for attempts that share their syncs. The caller must
    then make the seal durable. None to sync each file."""
    plan_file_digest: Digest | None = None
    """Digest of the bytes of plan.json. None for a conversation."""
    left: tuple[ClockName, int] | None = None
    """Name and remaining milliseconds of a clock that covers more than this attempt. None if there is no such clock."""
    at_rest: Callable[[], None] = _do_nothing
    """Called when neither the agent nor probes nor hooks run any more. Not called if the attempt is abandoned before
    that."""

    @property
    def required_probes(self) -> tuple[RequiredProbe, ...]:
        """The probes that the mission requires, in its order."""
        hidden = None if self.hidden_files is None else self.hidden_files.digest
        return require(self.mission.probes, files=self.sources, hidden=hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The end of an attempt."""

    attempt_id: AttemptId
    """Id of the attempt."""
    state: State
    """`sealed` or `abandoned`."""
    summary: AttemptSummary | None = None
    """The summary of a sealed attempt. None if it was abandoned."""
    error: ProctorError | None = None
    """Why an abandoned attempt has no seal. None if it was sealed."""
