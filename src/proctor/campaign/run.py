"""One run of a campaign: every cell is claimed, tried, sealed and put into the ledger, several at a time."""

import os
import secrets as chance
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.to_thread

from proctor import places
from proctor.attempt.model import DECIDE_S, AttemptAsk, AttemptResult, Watcher
from proctor.attempt.supervise import run_attempt
from proctor.campaign import ledger
from proctor.campaign.agents import Agents, Between
from proctor.campaign.durable import SharedSync
from proctor.campaign.freeze import Frozen, freeze
from proctor.campaign.health import HealthBook
from proctor.campaign.hosts import HostPool
from proctor.campaign.ledger import GroupCommit, open_ledger
from proctor.campaign.preflight import Ready, preflight
from proctor.campaign.scratch import open_scratch
from proctor.canonical import digest_bytes
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.contain.intent import open_intents, take_lock
from proctor.errors import InputError, MachineError, lone
from proctor.evidence.artifacts import PlanFile
from proctor.evidence.layout import CampaignPaths, RootPaths, write_artifact
from proctor.evidence.redact import Redactor
from proctor.evidence.sync import open_sync
from proctor.ids import AttemptId, CampaignId, Digest, ProcessId, RunId
from proctor.plan.model import Cell, ResolvedFlow
from proctor.runtime.base import Decide
from proctor.spec.load import LoadedSpec
from proctor.spec.model import Approvals, MissionSpec, Persistence
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    campaign_id: CampaignId
    run_id: RunId
    paths: CampaignPaths
    attempts: tuple[AttemptResult, ...]
    redactor: Redactor = field(repr=False)
    warnings: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Stops:
    """How a running campaign is stopped from outside: nothing new begins, or one attempt ends, or everything does."""

    drain: anyio.Event = field(default_factory=anyio.Event)
    all: anyio.Event = field(default_factory=anyio.Event)
    one: dict[AttemptId, anyio.Event] = field(default_factory=dict)

    def stop_all(self) -> None:
        self.drain.set()
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
    between: Between | None = None,
    is_scratch_kept: bool = False,
    decide: Decide | None = None,
    decide_deadline_s: float = DECIDE_S,
) -> CampaignResult:
    """A new campaign with one run of every cell. `decide` is asked where a flow says so."""
    if decide is None:
        _refuse_to_ask_nobody(loaded)
    # In a thread: it hashes programs, tries containment and ends leftovers, which may all take a while.
    ready = await anyio.to_thread.run_sync(lambda: preflight(loaded, root=root, clock=clock))
    campaign_id = CampaignId(f"{loaded.spec.campaign}-{stamp(clock)}")
    run_id = RunId(stamp(clock))
    paths = RootPaths(root).campaign(campaign_id)
    paths.create()
    health = HealthBook(path=RootPaths(root).health, clock=clock)
    is_begun = False
    try:
        async with AsyncExitStack() as stack:
            stack.enter_context(_campaign_lock(paths))
            scratch = stack.enter_context(open_scratch(run_id, is_kept=is_scratch_kept))
            frozen = await anyio.to_thread.run_sync(
                lambda: freeze(loaded, paths=paths, workspaces=scratch / "bases", redactor=Redactor(ready.secrets))
            )
            book = stack.enter_context(open_ledger(paths.ledger))
            book.begin(frozen.plan, run=run_id, at_ms=clock.wall_ms(), file=str(loaded.path), spec=loaded.digest)
            is_begun = True
            # Last of the set-up: a campaign without a plan was cut off before anything ran.
            plan_file = PlanFile(plan=frozen.plan, snapshot=dict(frozen.snapshot))
            plan_bytes = write_artifact(paths.plan, plan_file, redactor=Redactor(ready.secrets))
            intents = await stack.enter_async_context(open_intents(places.state_dir() / "spawns"))
            sync = stack.enter_context(open_sync(root))
            disk = None if sync is None else SharedSync(sync)
            run = _Run(
                loaded=loaded,
                ready=ready,
                frozen=frozen,
                plan_file_digest=digest_bytes(plan_bytes),
                campaign_id=campaign_id,
                run_id=run_id,
                root=RootPaths(root),
                scratch=scratch,
                clock=clock,
                watcher=watcher,
                stops=stops or Stops(),
                is_scratch_kept=is_scratch_kept,
                agents=Agents(
                    ready=ready,
                    paths=RootPaths(root).run(run_id),
                    scratch=scratch,
                    intents=intents,
                    clock=clock,
                    health=health,
                    make_durable=None if disk is None else disk.make_durable,
                    between=between,
                ),
                disk=disk,
                decide=decide,
                decide_deadline_s=decide_deadline_s,
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
    told = (*ready.warnings, *run.agents.warnings(), *health.warnings)
    redactor = Redactor(ready.secrets)
    return CampaignResult(
        campaign_id=campaign_id, run_id=run_id, paths=paths, attempts=results, redactor=redactor, warnings=told
    )


def _refuse_to_ask_nobody(loaded: LoadedSpec) -> None:
    for at, flow in enumerate(loaded.spec.flows):
        if flow.approvals is Approvals.ASK:
            key = f"flows[{at}].approvals"
            what = "somebody is to be asked, and there is nobody: no terminal, and no callback"
            raise InputError("policy.nobody-to-ask", what, file=loaded.file, line=loaded.line_of(key), key=key)


def stamp(clock: Clock) -> str:
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


class _Place:
    """One of so many at a time, given back once: when its attempt is at rest, or over."""

    def __init__(self, slots: anyio.Semaphore) -> None:
        self._slots = slots
        self._is_held = False

    async def __aenter__(self) -> "_Place":
        await self._slots.acquire()
        self._is_held = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        if self._is_held:
            self._is_held = False
            self._slots.release()


@dataclass(slots=True, kw_only=True)
class _Run:
    """What all attempts of a run share."""

    loaded: LoadedSpec
    ready: Ready
    frozen: Frozen
    plan_file_digest: Digest
    campaign_id: CampaignId
    run_id: RunId
    root: RootPaths
    scratch: Path
    clock: Clock
    watcher: Watcher
    stops: Stops
    is_scratch_kept: bool
    agents: Agents
    disk: SharedSync | None
    decide: Decide | None
    decide_deadline_s: float

    async def all_cells(self, commit: GroupCommit) -> tuple[AttemptResult, ...]:
        plan = self.frozen.plan
        flows = {flow.id: flow for flow in plan.flows}
        missions = {mission.id: mission for mission in self.loaded.missions}
        waiting: Iterator[Cell] = iter(plan.cells)
        results: dict[AttemptId, AttemptResult] = {}
        async with AsyncExitStack() as stack:
            await self.agents.open_model(stack, flows)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(commit.run)
            if self.disk is not None:
                tasks.start_soon(self.disk.run)
                # After the agents' processes, whose records are synced last.
                stack.callback(self.disk.close)
            hosts = await stack.enter_async_context(anyio.create_task_group())
            pool = HostPool(hosts, new_id=lambda: ProcessId(f"p-{chance.token_hex(6)}"))

            # As many attempts again may wait for the disk: an agent need not stand idle while evidence is synced.
            parallel = self.loaded.spec.schedule.parallel
            slots = anyio.Semaphore(parallel, fast_acquire=True)

            async def work() -> None:
                while True:
                    async with _Place(slots) as place:
                        cell = next(waiting, None)
                        if cell is None or self.stops.drain.is_set():
                            return
                        flow, mission = flows[cell.flow], missions[cell.mission]
                        result = await self._one_cell(
                            cell, flow, mission, pool=pool, commit=commit, at_rest=place.leave
                        )
                        results[result.attempt_id] = result

            async with anyio.create_task_group() as workers:
                for _ in range(min(2 * parallel, len(plan.cells))):
                    workers.start_soon(work)
            pool.retire_all()
            commit.close()
            await self.agents.health.write(least=1)
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
        at_rest: Callable[[], None],
    ) -> AttemptResult:
        n = 1
        attempt = AttemptId(f"{cell.id}.{n}")
        stop = self.stops.one[attempt] = anyio.Event()
        await commit.put(ledger.claim(attempt, cell=cell.id, n=n, run=self.run_id, at_ms=self.clock.wall_ms()))
        candidate = await self.agents.choose(flow, pool)
        workspace = mission.workspace.key
        script = None if mission.script is None else self.ready.scripts[mission.script]
        with self.agents.playing(attempt, script, flow) as model:
            ask = AttemptAsk(
                attempt_id=attempt,
                n=n,
                campaign_id=self.campaign_id,
                run_id=self.run_id,
                plan_digest=self.frozen.plan.digest,
                plan_file_digest=self.plan_file_digest,
                cell=cell,
                mission=self.loaded.asked(mission, flow.id),
                flow=flow,
                limits=self.frozen.plan.limits,
                paths=self.root.run(self.run_id).attempt(cell.id, n=n),
                scratch=self.scratch / "attempts" / attempt,
                workspace_source=None if workspace is None else self.frozen.workspaces[workspace],
                workspace_digest=EMPTY.digest if workspace is None else self.frozen.workspace_digests[workspace],
                runtime=candidate.runtime,
                lease=lambda: self.agents.lease(flow, pool),
                model=model,
                secrets=self.ready.secrets,
                containment=self.ready.containment,
                intents=self.agents.intents,
                clock=self.clock,
                watcher=self.watcher,
                hidden=(self.root.folder,),
                spec_folder=self.loaded.folder,
                facts=self.agents.facts(flow),
                is_persistent=flow.persistence is Persistence.PERSISTENT,
                decide=self.decide,
                decide_deadline_s=self.decide_deadline_s,
                stop=stop,
                is_scratch_kept=self.is_scratch_kept,
                make_durable=None if self.disk is None else self.disk.make_durable,
                at_rest=at_rest,
            )
            result = await run_attempt(ask)
        at_ms = self.clock.wall_ms()
        if result.report is not None:
            self.agents.health.ended(candidate.key, outcome=result.report.outcome, code=result.report.code)
            await self.agents.health.write()
            if self.disk is not None:
                # First the seal is durable, then the ledger says that there is one.
                await self.disk.make_durable()
            await commit.put(ledger.settle(attempt, result.report, at_ms=at_ms, strategy=candidate.strategy))
        else:
            code = "run.harness" if result.error is None else result.error.code
            await commit.put(ledger.abandon(attempt, code=code, at_ms=at_ms))
        return result
