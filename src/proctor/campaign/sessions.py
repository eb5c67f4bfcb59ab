"""Conversations on warm agent processes: the checks, processes and records that they share."""

import secrets as chance
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import structs

from proctor import places
from proctor.attempt.converse import LiveSession
from proctor.attempt.hold import RecordMode, hold_session
from proctor.attempt.model import DECIDE_S, AttemptRequest, Watcher
from proctor.campaign.agents import Agents
from proctor.campaign.health import HealthRecorder
from proctor.campaign.hosts import HostPool
from proctor.campaign.preflight import PreflightResult, preflight
from proctor.campaign.scratch import open_scratch
from proctor.campaign.stamp import stamp
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.contain.intent import open_intents
from proctor.errors import InputError, ProctorError
from proctor.event.outcome import Outcome
from proctor.evidence.layout import RootPaths, RunPaths
from proctor.ids import AttemptId, CampaignId, ProcessId, RunId, ThreadId, TrialId
from proctor.model.script import load_script
from proctor.plan.expand import expand, resolve_flow
from proctor.plan.model import Contents, ResolvedFlow
from proctor.runtime.base import Decide, Tool
from proctor.spec.load import LoadedSpec
from proctor.spec.model import Isolation
from proctor.workspace.snapshot import EMPTY

# How long callers have to leave their open sessions, including the seal, when the pool is closed.
LEAVE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRequest:
    """A request for one conversation. `loaded` is a spec with exactly one mission and one flow."""

    loaded: LoadedSpec
    workspace: Path | None = None
    decide: Decide | None = None
    decide_deadline_s: float = DECIDE_S
    tools: tuple[Tool, ...] = ()
    tool_deadline_s: float = DECIDE_S
    is_persistent: bool = False
    resume: ThreadId | None = None
    fork: ThreadId | None = None


class Sessions:
    """Opens conversations. With shared isolation they all use one process, which is replaced when it dies."""

    def __init__(
        self,
        ready: PreflightResult,
        agents: Agents,
        hosts: HostPool,
        *,
        flow: ResolvedFlow,
        run_id: RunId,
        root: Path,
        keep: RecordMode,
    ) -> None:
        self._ready = ready
        self._agents = agents
        self._hosts = hosts
        self._flow = flow
        self._run_id = run_id
        self._root = root
        self._keep = keep
        self._numbers = count(1)
        self._open: dict[AttemptId, LiveSession] = {}
        self._all_left = anyio.Event()
        self._is_closed = False

    async def close(self) -> None:
        """End all processes. Open sessions are closed first, so that they do not count as crashed."""
        self._is_closed = True
        try:
            # Shielded so that the record says why each session ended; `LiveSession.close` is bounded.
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as closing:
                    for live in self._open.values():
                        closing.start_soon(partial(live.close, why="the pool was closed"))
                if self._open:
                    with anyio.move_on_after(LEAVE_S):
                        await self._all_left.wait()
        finally:
            self._hosts.retire_all()

    @asynccontextmanager
    async def session(self, request: ConversationRequest) -> AsyncIterator[LiveSession]:
        if self._is_closed:
            raise InputError("session.over", "the pool is closed")
        self._keep_evidence_out_of(request.workspace)
        spec = request.loaded.spec
        plan = expand(
            spec,
            missions=request.loaded.missions,
            digests=Contents(scripts=request.loaded.script_digests, workspaces={}),
        )
        [flow], [mission] = plan.flows, request.loaded.missions
        trial = TrialId(f"session-{next(self._numbers)}")
        attempt = AttemptId(f"{trial}.1")
        script = None if mission.script is None else load_script(request.loaded.scripts[mission.script])
        candidate = await self._agents.choose(self._flow, self._hosts)
        sight = self._agents.sight(self._flow, candidate)
        _refuse_hidden(request.workspace, sight.hidden)
        place = self._agents.place(self._flow, candidate, self._hosts)
        with self._agents.playing(attempt, script, flow, candidate) as model:
            ask = AttemptRequest(
                attempt_id=attempt,
                n=1,
                campaign_id=CampaignId(spec.campaign),
                run_id=self._run_id,
                plan_digest=plan.digest,
                trial=structs.replace(plan.trials[0], id=trial),
                mission=mission,
                flow=flow,
                limits=plan.limits,
                paths=self._paths.attempt(trial, n=1),
                scratch=self._agents.workspaces / attempt,
                judging=self._agents.judging / attempt,
                workspace_source=None,
                workspace_digest=EMPTY.digest,
                runtime=candidate.runtime,
                lease=place.lease,
                model=model,
                script_misfit=lambda: self._agents.script_misfit(attempt),
                secrets=self._ready.secrets,
                containment=self._ready.containment,
                intents=self._agents.intents,
                clock=self._agents.clock,
                watcher=Watcher(),
                hidden_from_agent=sight.hidden,
                visible_to_agent=sight.visible,
                # Sandbox and approvals are those of the session.
                facts={
                    **self._agents.facts(self._flow, candidate),
                    "hiding": self._agents.hiding_fact(flow, candidate),
                },
                decide=request.decide,
                decide_deadline_s=request.decide_deadline_s,
                tools=request.tools,
                tool_deadline_s=request.tool_deadline_s,
                is_persistent=request.is_persistent,
                resume=request.resume,
                fork=request.fork,
            )
            live = None
            try:
                async with hold_session(ask, keep=self._keep, workspace=request.workspace) as live:
                    self._open[attempt] = live
                    place.opened()
                    yield live
            except ProctorError as error:
                if live is None:
                    place.ended(Outcome.REFUSED, error.code)
                raise
            finally:
                if live is not None:
                    place.ended(live.outcome, live.ending.code)
                self._open.pop(attempt, None)
                if self._is_closed and not self._open:
                    self._all_left.set()

    def _keep_evidence_out_of(self, workspace: Path | None) -> None:
        if self._keep is not RecordMode.DISK or workspace is None:
            return
        if self._paths.folder.resolve().is_relative_to(workspace.resolve()):
            what = f"the evidence root {self._root} is inside the workspace, where the agent could change it"
            suggestion = "Pass a `root` outside the workspace."
            raise InputError("spec.unsupported", what, file="session", key="workspace", suggestion=suggestion)

    @property
    def _paths(self) -> RunPaths:
        return RootPaths(self._root).session(self._run_id)


def _refuse_hidden(workspace: Path | None, hidden: Iterable[Path]) -> None:
    for folder in hidden:
        if workspace is not None and workspace.resolve().is_relative_to(folder):
            what = f"the workspace {workspace} is in {folder}, which is hidden from agents"
            suggestion = "Use a workspace outside the evidence root and Proctor's own folders."
            raise InputError("spec.unsupported", what, file="session", key="workspace", suggestion=suggestion)


@asynccontextmanager
async def open_sessions(
    loaded: LoadedSpec,
    *,
    root: Path,
    keep: RecordMode,
    clock: Clock = SYSTEM_CLOCK,
    secrets: Mapping[str, str] | None = None,
) -> AsyncIterator[Sessions]:
    """Open a pool of conversations for the one flow of `loaded`. A shared process is already running on entry.

    `secrets` are values to mask by name.
    """
    ready = await preflight(loaded, root=root, clock=clock, secrets=secrets, is_conversation=True)
    flow = resolve_flow(loaded.spec.flows[0], spec=loaded.spec)
    run_id = RunId(stamp(clock))
    problem: Exception | None = None
    async with AsyncExitStack() as stack:
        scratch = stack.enter_context(open_scratch(run_id, is_kept=False))
        intents = await stack.enter_async_context(open_intents(places.spawns_dir()))
        paths = RootPaths(root).session(run_id) if keep is RecordMode.DISK else None
        health = HealthRecorder(path=None if paths is None else RootPaths(root).health, clock=clock)
        agents = Agents(ready=ready, paths=paths, scratch=scratch, intents=intents, clock=clock, health=health)
        await agents.open_model(stack, {flow.id: flow})
        tasks = await stack.enter_async_context(anyio.create_task_group())
        hosts = HostPool(tasks, new_id=lambda: ProcessId(f"p-{chance.token_hex(6)}"), on_gone=agents.host_gone)
        sessions = Sessions(ready, agents, hosts, flow=flow, run_id=run_id, root=root, keep=keep)
        try:
            candidate = await agents.choose(flow, hosts)
            if flow.isolation is Isolation.SHARED:
                async with agents.lease(flow, candidate, hosts):
                    pass
            yield sessions
        except Exception as error:
            # Kept out of the task group, which would wrap the caller's own error into a group.
            problem = error
        finally:
            await sessions.close()
    await health.write(least=1)
    if (problem := problem or hosts.failure) is not None:
        raise problem
