"""One run of a campaign: every cell is claimed, tried, sealed and put into the ledger, several at a time."""

import os
import secrets as chance
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from proctor import places
from proctor.attempt.model import AttemptAsk, AttemptResult, Lease, Watcher
from proctor.attempt.supervise import run_attempt
from proctor.campaign import ledger
from proctor.campaign.freeze import Frozen, PlanFile, freeze
from proctor.campaign.hosts import HostPool
from proctor.campaign.ledger import GroupCommit, open_ledger
from proctor.campaign.preflight import Ready, preflight
from proctor.campaign.process import open_recorded_host
from proctor.campaign.scratch import open_scratch
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.contain.intent import IntentBook, open_intents, take_lock
from proctor.errors import MachineError, lone
from proctor.evidence.layout import CampaignPaths, RootPaths, write_artifact
from proctor.evidence.redact import Redactor
from proctor.ids import AttemptId, CampaignId, FlowId, ProcessId, RunId
from proctor.plan.model import Cell, ResolvedFlow
from proctor.runtime.base import HostAsk, ModelAsk
from proctor.spec.load import LoadedSpec
from proctor.spec.model import SCRIPTED, MissionSpec
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import EMPTY

if TYPE_CHECKING:
    from proctor.model.server import ScriptedModel

SCRIPTED_MODEL = "proctor-scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    campaign_id: CampaignId
    run_id: RunId
    paths: CampaignPaths
    attempts: tuple[AttemptResult, ...]
    redactor: Redactor = field(repr=False)


@dataclass(slots=True, kw_only=True)
class Stops:
    """How a running campaign is stopped from outside: one attempt, or everything still to come."""

    all: anyio.Event = field(default_factory=anyio.Event)
    one: dict[AttemptId, anyio.Event] = field(default_factory=dict)

    def stop_all(self) -> None:
        self.all.set()
        for stop in self.one.values():
            stop.set()


async def run_campaign(
    loaded: LoadedSpec,
    *,
    root: Path,
    watcher: Watcher,
    clock: Clock = SYSTEM_CLOCK,
    stops: Stops | None = None,
    is_scratch_kept: bool = False,
) -> CampaignResult:
    """A new campaign with one run of every cell."""
    # In a thread: it hashes programs, tries containment and ends leftovers, which may all take a while.
    ready = await anyio.to_thread.run_sync(preflight, loaded)
    campaign_id = CampaignId(f"{loaded.spec.campaign}-{_stamp(clock)}")
    run_id = RunId(_stamp(clock))
    paths = RootPaths(root).campaign(campaign_id)
    paths.create()
    is_begun = False
    try:
        async with AsyncExitStack() as stack:
            stack.enter_context(_campaign_lock(paths))
            scratch = stack.enter_context(open_scratch(run_id, is_kept=is_scratch_kept))
            frozen = await anyio.to_thread.run_sync(
                lambda: freeze(loaded, paths=paths, workspaces=scratch / "bases", redactor=Redactor(ready.secrets))
            )
            book = stack.enter_context(open_ledger(paths.ledger))
            book.begin(frozen.plan, run=run_id, at_ms=clock.wall_ms())
            is_begun = True
            # Last of the set-up: a campaign without a plan was cut off before anything ran.
            write_artifact(paths.plan, PlanFile(plan=frozen.plan), redactor=Redactor(ready.secrets))
            intents = await stack.enter_async_context(open_intents(places.state_dir() / "spawns"))
            run = _Run(
                loaded=loaded,
                ready=ready,
                frozen=frozen,
                campaign_id=campaign_id,
                run_id=run_id,
                root=RootPaths(root),
                scratch=scratch,
                intents=intents,
                clock=clock,
                watcher=watcher,
                stops=stops or Stops(),
                is_scratch_kept=is_scratch_kept,
            )
            results = await run.all_cells(GroupCommit(book, path=paths.ledger))
            book.end(run_id, at_ms=clock.wall_ms())
    except BaseExceptionGroup as group:
        raise lone(group) from group
    finally:
        if not is_begun:
            # Nothing ran, so there is nothing to keep: half a campaign would only look like damage.
            with suppress(OSError):
                remove(paths.folder)
    return CampaignResult(
        campaign_id=campaign_id, run_id=run_id, paths=paths, attempts=results, redactor=Redactor(ready.secrets)
    )


def _stamp(clock: Clock) -> str:
    """Sorts by time, and two in one second differ."""
    at = datetime.fromtimestamp(clock.wall_ms() / 1000, tz=UTC)
    return f"{at:%Y%m%d-%H%M%S}-{chance.token_hex(3)}"


@contextmanager
def _campaign_lock(paths: CampaignPaths) -> Iterator[None]:
    """A kernel lock: it dies with its owner, so a dead owner blocks nobody."""
    lock = take_lock(paths.folder)
    if lock is None:
        raise MachineError("machine.locked", f"{paths.folder.name} is being run by another Proctor")
    try:
        yield
    finally:
        os.close(lock)


@dataclass(slots=True, kw_only=True)
class _Run:
    """What all attempts of a run share."""

    loaded: LoadedSpec
    ready: Ready
    frozen: Frozen
    campaign_id: CampaignId
    run_id: RunId
    root: RootPaths
    scratch: Path
    intents: IntentBook
    clock: Clock
    watcher: Watcher
    stops: Stops
    is_scratch_kept: bool
    stage: "ScriptedModel | None" = None

    async def all_cells(self, commit: GroupCommit) -> tuple[AttemptResult, ...]:
        plan = self.frozen.plan
        flows = {flow.id: flow for flow in plan.flows}
        missions = {mission.id: mission for mission in self.loaded.spec.missions}
        waiting: Iterator[Cell] = iter(plan.cells)
        results: dict[AttemptId, AttemptResult] = {}
        async with AsyncExitStack() as stack:
            await self._open_model(stack, flows)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(commit.run)
            hosts = await stack.enter_async_context(anyio.create_task_group())
            pool = HostPool(hosts, new_id=lambda: ProcessId(f"p-{chance.token_hex(6)}"))

            async def work() -> None:
                for cell in waiting:
                    if self.stops.all.is_set():
                        return
                    flow, mission = flows[cell.flow], missions[cell.mission]
                    result = await self._one_cell(cell, flow, mission, pool=pool, commit=commit)
                    results[result.attempt_id] = result

            async with anyio.create_task_group() as workers:
                for _ in range(min(self.loaded.spec.schedule.parallel, len(plan.cells))):
                    workers.start_soon(work)
            pool.retire_all()
            commit.close()
        if pool.failure is not None:
            raise pool.failure
        order = {AttemptId(f"{cell.id}.1"): at for at, cell in enumerate(plan.cells)}
        return tuple(sorted(results.values(), key=lambda result: order[result.attempt_id]))

    async def _one_cell(
        self,
        cell: Cell,
        flow: ResolvedFlow,
        mission: MissionSpec,
        *,
        pool: HostPool,
        commit: GroupCommit,
    ) -> AttemptResult:
        n = 1
        attempt = AttemptId(f"{cell.id}.{n}")
        stop = self.stops.one[attempt] = anyio.Event()
        await commit.put(ledger.claim(attempt, cell=cell.id, n=n, run=self.run_id, at_ms=self.clock.wall_ms()))
        resolution = self.ready.resolutions[flow.id]
        workspace = mission.workspace.key
        with self._playing(attempt, mission, flow) as model:
            ask = AttemptAsk(
                attempt_id=attempt,
                n=n,
                campaign_id=self.campaign_id,
                run_id=self.run_id,
                plan_digest=self.frozen.plan.digest,
                cell=cell,
                mission=mission,
                flow=flow,
                limits=self.frozen.plan.limits,
                paths=self.root.run(self.run_id).attempt(cell.id, n=n),
                scratch=self.scratch / "attempts" / attempt,
                workspace_source=None if workspace is None else self.frozen.workspaces[workspace],
                workspace_digest=EMPTY.digest if workspace is None else self.frozen.workspace_digests[workspace],
                runtime=resolution.runtime,
                lease=lambda: pool.lease(flow.id, flow.isolation, lambda process: self._open_host(flow, process)),
                model=model,
                secrets=self.ready.secrets,
                containment=self.ready.containment,
                intents=self.intents,
                clock=self.clock,
                watcher=self.watcher,
                hidden=(self.root.folder,),
                facts={"resolution": resolution.fact()},
                stop=stop,
                is_scratch_kept=self.is_scratch_kept,
            )
            result = await run_attempt(ask)
        at_ms = self.clock.wall_ms()
        if result.report is not None:
            await commit.put(ledger.settle(attempt, result.report, at_ms=at_ms))
        else:
            code = "run.harness" if result.error is None else result.error.code
            await commit.put(ledger.abandon(attempt, code=code, at_ms=at_ms))
        return result

    # ── agent processes ──

    def _open_host(self, flow: ResolvedFlow, process: ProcessId) -> AbstractAsyncContextManager[Lease]:
        resolution = self.ready.resolutions[flow.id]
        place = self.scratch / "processes" / process
        ask = HostAsk(
            process=process,
            executable=resolution.executable,
            home=place / "home",
            tmp=place / "tmp",
            env=self.ready.environments[flow.id],
            containment=self.ready.containment,
            intents=self.intents,
            clock=self.clock,
            model=self._model(flow, None),
        )
        paths = self.root.run(self.run_id).runtime(process)
        redactor = Redactor(self.ready.secrets, private=resolution.runtime.private)
        return open_recorded_host(resolution.runtime, ask, paths=paths, redactor=redactor, planted=self.ready.canary)

    def _model(self, flow: ResolvedFlow, base_url: str | None) -> ModelAsk:
        if flow.model.is_scripted:
            # A host is told of no model at all: each session brings its own address.
            return ModelAsk(provider=SCRIPTED, name=SCRIPTED_MODEL, base_url=base_url or "http://127.0.0.1:1/v1")
        return ModelAsk(
            provider=flow.model.provider,
            name=flow.model.name or "",
            base_url=flow.model.base_url,
            key_variable=self.ready.key_variables[flow.id],
        )

    async def _open_model(self, stack: AsyncExitStack, flows: Mapping[FlowId, ResolvedFlow]) -> None:
        if not any(flow.model.is_scripted for flow in flows.values()):
            return
        # Imported when used: a web server is a heavy thing to start with.
        try:
            from proctor.model.server import open_model
        except ModuleNotFoundError as error:
            raise MachineError("machine.extra-missing", f"no {error.name}: install 'proctor[model]'") from error
        self.stage = await stack.enter_async_context(open_model(clock=self.clock))

    @contextmanager
    def _playing(self, attempt: AttemptId, mission: MissionSpec, flow: ResolvedFlow) -> Iterator[ModelAsk]:
        """The mission's script is on for this attempt, where its model is scripted."""
        if self.stage is None or mission.script is None or not flow.model.is_scripted:
            yield self._model(flow, None)
            return
        try:
            yield self._model(flow, self.stage.play(attempt, self.ready.scripts[mission.script]))
        finally:
            self.stage.forget(attempt)
