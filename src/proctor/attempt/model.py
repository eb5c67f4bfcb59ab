"""What a campaign hands to the supervisor for one attempt, and what it gets back."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from proctor.attempt.machine import State
from proctor.attempt.watchdog import ClockName
from proctor.clock import Clock
from proctor.contain.intent import IntentBook
from proctor.contain.ladder import Containment
from proctor.errors import ProctorError
from proctor.event.model import Event
from proctor.evidence.artifacts import AttemptReport
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.secrets import Secret
from proctor.fact import Fact
from proctor.ids import AttemptId, CampaignId, Digest, ProcessId, RunId, ThreadId
from proctor.plan.model import Cell, Limits, ResolvedFlow
from proctor.runtime.base import Decide, Host, ModelAsk, Runtime, Tool
from proctor.spec.model import MissionSpec

DECIDE_S = 120.0
"""How long somebody who is asked may take."""


def _nothing() -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A place in a running agent process.

    `rows` counts what the process's own record holds so far; `failure` says why it could not be kept, if so.
    """

    process: ProcessId
    host: Host
    rows: Callable[[], int]
    failure: Callable[[], ProctorError | None]


class Watcher:
    """Sees an attempt's states and events as they happen; does nothing by itself."""

    def entered(self, attempt: AttemptId, state: State) -> None:
        """The attempt is in this state now."""

    def saw(self, attempt: AttemptId, event: Event) -> None:
        """This was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptAsk:
    """One claim of a cell: everything the supervisor needs, and nothing it has to look up."""

    attempt_id: AttemptId
    n: int
    campaign_id: CampaignId
    run_id: RunId
    plan_digest: Digest
    cell: Cell
    mission: MissionSpec
    flow: ResolvedFlow
    limits: Limits
    paths: AttemptPaths
    scratch: Path
    workspace_source: Path | None
    workspace_digest: Digest
    runtime: Runtime
    lease: Callable[[], AbstractAsyncContextManager[Lease]]
    model: ModelAsk
    secrets: tuple[Secret, ...]
    containment: Containment
    intents: IntentBook
    clock: Clock
    watcher: Watcher
    hidden: tuple[Path, ...] = ()  # what a contained process must not see beside what it never does
    spec_folder: Path = Path()  # where the mission's hooks run
    facts: Mapping[str, Fact] = field(default_factory=dict)
    decide: Decide | None = None
    decide_deadline_s: float = DECIDE_S
    tools: tuple[Tool, ...] = ()
    tool_deadline_s: float = DECIDE_S
    is_persistent: bool = False
    resume: ThreadId | None = None
    fork: ThreadId | None = None
    stop: anyio.Event = field(default_factory=anyio.Event)
    is_scratch_kept: bool = False
    # Where many attempts share their syncs: returns when what was written until now survives a power cut. The seal
    # itself is then left to the caller to make durable.
    make_durable: Callable[[], Awaitable[None]] | None = None
    plan_file_digest: Digest | None = None
    left: tuple[ClockName, int] | None = None  # milliseconds of a clock over more than this attempt
    at_rest: Callable[[], None] = _nothing  # told when neither agent nor probes run any more, if it comes to that


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """Sealed, with its report; or abandoned, with the reason why there is no seal."""

    attempt_id: AttemptId
    state: State
    report: AttemptReport | None = None
    error: ProctorError | None = None
