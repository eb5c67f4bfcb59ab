"""Conversations on warm agent processes: the checks, processes and records that they share."""

import dataclasses
import secrets as chance
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
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
from proctor.attempt.model import DECIDE_S, AttemptRequest, KeptSitting, Watcher
from proctor.campaign.agents import Agents, KeptFolders
from proctor.campaign.health import HealthRecorder
from proctor.campaign.hosts import HostPool
from proctor.campaign.preflight import PreflightResult, preflight
from proctor.campaign.scratch import open_scratch
from proctor.campaign.session_engine import ContextRequest, SittingAgent, context_ref, open_engine
from proctor.campaign.stamp import stamp
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.contain.intent import open_intents
from proctor.context.binding import ThreadDecision, ThreadReason, decide_thread
from proctor.context.engine_use import EngineUse
from proctor.context.keeper import SessionKeeper
from proctor.context.kept_session import AGENT_HOMES, KeptSession, open_kept_session, tools_digest
from proctor.context.model import SessionSettings, Sitting, SittingState
from proctor.context.registry import engine_by_id
from proctor.context.store import read_store
from proctor.errors import EngineError, EvidenceError, InputError, MachineError, ProctorError, RefusedError, disk_error
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import SittingRef
from proctor.evidence.layout import RootPaths, RunPaths
from proctor.ids import AttemptId, CampaignId, ProcessId, RunId, RuntimeId, ThreadId, TrialId
from proctor.model.script import load_script
from proctor.plan.expand import Contents, expand, resolve_flow
from proctor.plan.model import ResolvedFlow
from proctor.runtime.base import Decide, Tool
from proctor.runtime.resolve import Candidate
from proctor.spec.choices import Approvals, Isolation, Sandbox
from proctor.spec.load import LoadedSpec
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
    kept: "KeptRequest | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRequest:
    """What a session with an id adds to a request."""

    key: str
    settings: SessionSettings
    """How the sitting is opened, for commands that open the next one."""
    is_ephemeral: bool = False
    """Whether no native thread is kept."""
    must_exist: bool = False
    adopted: ThreadId | None = None
    """A thread that the agent keeps already, with which a new session begins."""
    context: ContextRequest | None = None
    """The context engine. None if only the native thread remembers what was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenedSitting:
    """A sitting of a session that is held, and how its thread is opened."""

    kept: KeptSession
    keeper: SessionKeeper
    ref: SittingRef
    decision: ThreadDecision | None
    """How the thread is opened. None if the first turn decides, with its context engine."""
    folders: KeptFolders
    workspace: Path
    tools: tuple[Tool, ...]
    """The tools of the caller and of the engine."""
    engine: EngineUse | None


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
        candidate = await self._agents.choose(self._flow, self._hosts)
        if request.kept is None:
            async with self._converse(request, candidate, self._next_attempt(), None) as live:
                yield live
            return
        is_open = is_forgotten = False
        while not is_open:
            attempt = self._next_attempt()
            async with self._open_sitting(request, request.kept, candidate, attempt) as sitting:
                try:
                    async with self._converse(request, candidate, attempt, sitting) as live:
                        is_open = True
                        yield live
                except InputError:
                    sitting.kept.is_refused = not is_open
                    raise
                except RefusedError as error:
                    # Any other code is about something that the runtime cannot do for any thread.
                    decision = sitting.decision
                    if is_open or decision is None or decision.how == "start" or error.code != "peer.refused":
                        raise
                    if request.kept.adopted is not None or sitting.kept.has_history or is_forgotten:
                        raise _lost(candidate.runtime_id, decision, error) from error
                    # Nothing was said in it, and agents store some threads only with their first turn.
                    sitting.keeper.forget_thread()
                    is_forgotten = True

    def _next_attempt(self) -> AttemptId:
        return AttemptId(f"session-{next(self._numbers)}.1")

    @asynccontextmanager
    async def _open_sitting(
        self, request: ConversationRequest, asked: KeptRequest, candidate: Candidate, attempt: AttemptId
    ) -> AsyncIterator[_OpenedSitting]:
        """Hold a session that is kept, and decide how its thread is opened."""
        self._refuse_unkept(asked)
        clock, runtime_id = self._agents.clock, candidate.runtime_id
        opening = open_kept_session(RootPaths(self._root), asked.key, clock=clock, must_exist=asked.must_exist)
        failure: Exception | None = None
        with ExitStack() as stack:
            # In a thread: it may have to read the record of a sitting that was killed.
            kept = await anyio.to_thread.run_sync(stack.enter_context, opening)
            process = await self._shared_process(candidate)
            kept.pool_workspaces = None if process is None else self._agents.workspaces
            async with AsyncExitStack() as engines:
                engine, tools = await self._open_engine(engines, request, asked, candidate, kept, process)
                catalog = tools_digest(tools)
                decision = None
                if engine is None or asked.adopted is not None:
                    decision = self._decide(kept, asked, runtime_id=runtime_id, tools=catalog, process=process)
                # Of a thread that cannot be continued nothing is kept: the engine remembers what was said.
                can_resume = candidate.runtime.capabilities.thread_resume
                is_ephemeral = asked.is_ephemeral or (engine is not None and not can_resume)
                folders = _make_folders(kept, runtime_id, has_home=process is None and not is_ephemeral)
                sitting = Sitting(
                    n=kept.store.next_sitting(),
                    run_id=self._run_id,
                    attempt_id=attempt,
                    runtime_id=runtime_id,
                    began_at_ms=clock.wall_ms(),
                    state=SittingState.OPEN,
                    is_import=asked.adopted is not None,
                    tools=catalog,
                    process=process,
                    is_ephemeral=is_ephemeral,
                )
                first_turn = kept.store.next_turn()
                keeper = SessionKeeper(kept, sitting, first_turn=first_turn)
                await keeper.begin(asked.settings)
                try:
                    yield _OpenedSitting(
                        kept=kept,
                        keeper=keeper,
                        ref=SittingRef(
                            session=kept.header.id,
                            n=sitting.n,
                            is_fresh=not kept.has_history if decision is None else decision.how == "start",
                            first_turn=first_turn,
                            history_after=kept.store.setup.history_after,
                            tools=catalog,
                            is_import=sitting.is_import,
                            is_ephemeral=sitting.is_ephemeral,
                        ),
                        decision=decision,
                        folders=folders,
                        workspace=request.workspace or kept.workspace,
                        tools=tools,
                        engine=engine,
                    )
                except Exception as error:
                    # Kept out of the store, which would report an SQLite error of the caller as its own damage.
                    failure = error
                finally:
                    # Shielded, so that the last turn of a cancelled caller is stored; each write is bounded.
                    with anyio.CancelScope(shield=True):
                        await keeper.close()
        if failure is not None:
            raise failure

    async def _open_engine(
        self,
        engines: AsyncExitStack,
        request: ConversationRequest,
        asked: KeptRequest,
        candidate: Candidate,
        kept: KeptSession,
        process: ProcessId | None,
    ) -> tuple[EngineUse | None, tuple[Tool, ...]]:
        """Open the context engine, if there is one. Returns it, and all tools of the sitting."""
        if asked.context is None:
            return None, request.tools
        binding, _ = kept.store.binding
        # A thread without the engine's tools is worth more than these tools.
        lacks_tools = binding is not None and binding.tools == tools_digest(request.tools)
        agent = SittingAgent(
            candidate=candidate,
            options=self._flow.options.get(candidate.runtime_id, {}),
            model=self._flow.model.name,
            process=process,
            tools=request.tools,
            takes_more_tools=asked.adopted is None and not lacks_tools,
            complete=partial(self._complete, request, candidate),
            is_origin_continued=self._is_origin_continued(kept),
        )
        create = engine_by_id(asked.context.settings.engine)
        opened = open_engine(asked.context, create, kept, agent, clock=self._agents.clock)
        engine, own_tools = await engines.enter_async_context(opened)
        return engine, (*request.tools, *own_tools)

    async def _complete(self, request: ConversationRequest, candidate: Candidate, prompt: str) -> str:
        """Ask the agent as a model: read-only, in an ephemeral thread, which is an attempt of this run."""
        asking = ConversationRequest(loaded=_read_only(request.loaded))
        async with self._converse(asking, candidate, self._next_attempt(), None) as live:
            ending = await live.say(prompt)
            if ending.outcome is not Outcome.COMPLETED:
                raise EngineError("engine.complete", f"the agent's turn ended as {ending.outcome}: {ending.detail}")
            return live.answer or ""

    def _refuse_unkept(self, asked: KeptRequest) -> None:
        if self._keep is not RecordMode.DISK:
            what = "a session with an id needs its evidence on disk"
            suggestion = 'Open the pool with `evidence="disk"`.'
            raise InputError("spec.unsupported", what, file="session", key="evidence", suggestion=suggestion)
        if asked.is_ephemeral and asked.context is None:
            what = "without its native thread, a session with the engine `none` remembers nothing"
            raise InputError("spec.unsupported", what, file="session", key="ephemeral")

    async def _shared_process(self, candidate: Candidate) -> ProcessId | None:
        """Return the process that all sessions share; None if each has its own."""
        if self._flow.isolation is not Isolation.SHARED:
            return None
        async with self._agents.lease(self._flow, candidate, self._hosts) as lease:
            return lease.process

    def _decide(
        self, kept: KeptSession, asked: KeptRequest, *, runtime_id: RuntimeId, tools: str, process: ProcessId | None
    ) -> ThreadDecision:
        """Return how the thread is opened. Raises MachineError if it is lost, and InputError for a second one."""
        binding, _ = kept.store.binding
        if asked.adopted is not None:
            if binding is not None or kept.has_history:
                what = f"the session {asked.key} has a thread or a history already"
                raise InputError("spec.unsupported", what, file="session", key="thread")
            if tools != tools_digest(()):
                what = (
                    "a thread that the agent keeps already has the tools that it was started with, and takes no others"
                )
                raise InputError("spec.unsupported", what, file="session", key="tools")
            return ThreadDecision(how="resume", reason=ThreadReason.SAME, thread=asked.adopted)
        decision = decide_thread(binding, runtime_id=runtime_id, tools=tools, process=process)
        if decision.how == "start" and kept.has_history:
            where = "" if binding is None else f", which is on {binding.runtime_id}"
            what = f"the session {asked.key} cannot continue its thread{where}: {decision.reason}"
            raise MachineError("session.thread-lost", what)
        if binding is not None and decision.how == "fork" and self._is_origin_continued(kept):
            decision = dataclasses.replace(decision, through=binding.last_turn)
        return decision

    def _is_origin_continued(self, kept: KeptSession) -> bool:
        """Return whether a session that this one was forked from may have continued the thread since."""
        for origin in kept.header.ancestors:
            try:
                with read_store(RootPaths(self._root).session(origin.session).store) as store:
                    if store.next_turn() - 1 > origin.turns:
                        return True
            except (EvidenceError, MachineError):
                return True  # it was deleted, or cannot be read
        return False

    @asynccontextmanager
    async def _converse(
        self, request: ConversationRequest, candidate: Candidate, attempt: AttemptId, sitting: _OpenedSitting | None
    ) -> AsyncIterator[LiveSession]:
        spec = request.loaded.spec
        plan = expand(
            spec,
            missions=request.loaded.missions,
            digests=Contents(scripts=request.loaded.script_digests, workspaces={}),
        )
        [flow], [mission] = plan.flows, request.loaded.missions
        trial = TrialId(attempt.removesuffix(".1"))
        script = None if mission.script is None else load_script(request.loaded.scripts[mission.script])
        sight = self._agents.sight(self._flow, candidate)
        _refuse_hidden(request.workspace, sight.hidden)
        decision = None if sitting is None else sitting.decision
        kept = None if sitting is None else sitting.folders
        place = self._agents.place(self._flow, candidate, self._hosts, kept=kept)
        # The thread may hold replies of an earlier sitting, whose attempt id is the same in another run.
        ids_from = None if sitting is None else f"{self._run_id}/{attempt}"
        with self._agents.playing(attempt, script, flow, candidate, ids_from=ids_from) as model:
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
                tools=request.tools if sitting is None else sitting.tools,
                tool_deadline_s=request.tool_deadline_s,
                sitting=None if sitting is None else sitting.ref,
                kept=None if sitting is None else KeptSitting(keeper=sitting.keeper, engine=sitting.engine),
                context=None if sitting is None or sitting.engine is None else context_ref(sitting.engine.info),
                is_persistent=sitting is not None and not sitting.ref.is_ephemeral,
                resume=decision.thread if decision is not None and decision.how == "resume" else None,
                fork=decision.thread if decision is not None and decision.how == "fork" else None,
                fork_through=None if decision is None else decision.through,
            )
            live = None
            try:
                async with hold_session(
                    ask,
                    keep=self._keep,
                    workspace=request.workspace if sitting is None else sitting.workspace,
                ) as live:
                    self._open[attempt] = live
                    place.opened()
                    yield live
            except ProctorError as error:
                if live is None:
                    place.ended(Outcome.REFUSED, error.code)
                raise
            finally:
                if live is not None:
                    if sitting is not None and sitting.engine is not None:
                        # The first turn has started the program.
                        place.opened()
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
        return RootPaths(self._root).run(self._run_id)


def _lost(runtime_id: RuntimeId, decision: ThreadDecision, error: RefusedError) -> MachineError:
    what = f"{runtime_id} cannot continue the thread {decision.thread}: {error.what}"
    return MachineError("session.thread-lost", what)


def _read_only(loaded: LoadedSpec) -> LoadedSpec:
    """Return the same spec with a flow that changes nothing."""
    [flow] = loaded.spec.flows
    flow = structs.replace(flow, sandbox=Sandbox.READ_ONLY, approvals=Approvals.DENY)
    return dataclasses.replace(loaded, spec=structs.replace(loaded.spec, flows=[flow]))


def _make_folders(kept: KeptSession, runtime_id: RuntimeId, *, has_home: bool) -> KeptFolders:
    """Create the folders of a session: a home for each runtime, and a workspace if the caller has none."""
    folder = kept.home
    homes = folder / AGENT_HOMES
    home = homes / runtime_id if has_home else None
    try:
        for each in (folder, homes, kept.workspace, *([] if home is None else [home])):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, path=folder) from error
    return KeptFolders(folder=folder, home=home)


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
        paths = RootPaths(root).run(run_id) if keep is RecordMode.DISK else None
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
