"""One run of a campaign: runs every trial that is not settled, seals its attempts and records them in the ledger."""

import math
import secrets as chance
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread

from proctor import places
from proctor.attempt.model import DECIDE_S, AttemptResult
from proctor.attempt.workspace_layout import REMOVE_S
from proctor.campaign.agents import Agents, Between
from proctor.campaign.attempt_runner import AttemptRunner
from proctor.campaign.control import open_control
from proctor.campaign.dispatch import Dispatcher
from proctor.campaign.durable import SharedSync
from proctor.campaign.health import HealthRecorder
from proctor.campaign.hiding import find_hidden_from_probes
from proctor.campaign.hosts import HostPool
from proctor.campaign.kept_trials import KeptTrials
from proctor.campaign.open import OpenCampaign, open_campaign
from proctor.campaign.schedule import Scheduler
from proctor.campaign.spending import Spending, prices_of
from proctor.campaign.stops import StopSignals
from proctor.campaign.trial_starter import TrialStarter
from proctor.campaign.watch import CampaignWatcher, RunStart
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.contain.intent import open_intents
from proctor.errors import InputError, ProctorError, unwrap_single
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.redact import Redactor
from proctor.evidence.sync import open_sync
from proctor.ids import CampaignId, ProcessId, RunId, TrialId
from proctor.ledger.writer import GroupCommit
from proctor.plan.progress import UNTRIED
from proctor.runtime.base import Decide
from proctor.spec.choices import Approvals
from proctor.spec.load import LoadedSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    """The result of one run of a campaign."""

    campaign_id: CampaignId
    run_id: RunId
    paths: CampaignPaths
    attempts: tuple[AttemptResult, ...]
    """The attempts of this run, in the order of the plan."""
    redactor: Redactor = field(repr=False)
    warnings: tuple[str, ...] = ()
    how: str = "done"
    """How the run ended: `done`, or why it ended early."""
    failure: ProctorError | None = None
    """Why the record of an agent process could not be closed. The attempts are not affected by it."""


async def run_campaign(
    loaded: LoadedSpec,
    *,
    root: Path,
    watcher: CampaignWatcher,
    clock: Clock = SYSTEM_CLOCK,
    stops: StopSignals | None = None,
    between: Between | None = None,
    is_scratch_kept: bool = False,
    decide: Decide | None = None,
    decide_deadline_s: float = DECIDE_S,
    resume: CampaignPaths | None = None,
    only: Collection[TrialId] | None = None,
    replace_reason: str | None = None,
    is_canary: bool = False,
    is_unjudgeable_allowed: bool = False,
    is_fail_fast: bool = False,
) -> CampaignResult:
    """Run a new campaign, or with `resume` the unsettled trials of an existing one.

    With `only`, exactly these trials are run, settled or not; scored results are replaced only with a `replace_reason`,
    which every report shows. `decide` answers approvals in flows with `approvals: ask`.

    Raises before the first attempt if a probe passes on the untouched workspace or cannot run, unless
    `is_unjudgeable_allowed`: then its trials run and end unscored. With `is_fail_fast`, no attempt starts after a trial
    has failed.
    """
    stops = stops or StopSignals()
    if decide is None:
        _require_decide(loaded)
    health = HealthRecorder(path=RootPaths(root).health, clock=clock)
    try:
        async with open_campaign(
            loaded,
            root=root,
            clock=clock,
            is_scratch_kept=is_scratch_kept,
            resume=resume,
            only=only,
            replace_reason=replace_reason,
            is_canary=is_canary,
            watcher=watcher,
            stop=stops.drain,
            is_unjudgeable_allowed=is_unjudgeable_allowed,
        ) as opened:
            run = _Run(
                loaded=loaded,
                opened=opened,
                root=RootPaths(root),
                clock=clock,
                watcher=watcher,
                stops=stops,
                health=health,
                between=between,
                is_scratch_kept=is_scratch_kept,
                decide=decide,
                decide_deadline_s=decide_deadline_s,
                is_fail_fast=is_fail_fast,
            )
            return await run.run_all()
    except BaseExceptionGroup as group:
        raise unwrap_single(group) from group


def _require_decide(loaded: LoadedSpec) -> None:
    for at, flow in enumerate(loaded.spec.flows):
        if flow.approvals is Approvals.ASK:
            key = f"flows[{at}].approvals"
            what = "`approvals: ask` needs a terminal or a `decide` callback"
            raise InputError("policy.no-approver", what, file=loaded.file, line=loaded.line_of(key), key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    loaded: LoadedSpec
    opened: OpenCampaign
    root: RootPaths
    clock: Clock
    watcher: CampaignWatcher
    stops: StopSignals
    health: HealthRecorder
    between: Between | None
    is_scratch_kept: bool
    decide: Decide | None
    decide_deadline_s: float
    is_fail_fast: bool

    async def run_all(self) -> CampaignResult:
        opened, plan = self.opened, self.opened.frozen.plan
        settled = {id_ for id_, progress in opened.progress.items() if progress.is_settled}
        self.watcher.began(
            RunStart(
                campaign_id=opened.campaign_id,
                run_id=opened.run_id,
                paths=opened.paths,
                trials=len(plan.trials),
                settled=len(settled),
                due=opened.due,
            )
        )
        async with self._open_dispatcher() as dispatcher:
            await dispatcher.run(opened.trials)
        how, attempts = self._how(dispatcher), dispatcher.attempts
        if opened.trials:
            opened.ledger.end(opened.run_id, at_ms=self.clock.wall_ms(), how=how)
        self.watcher.ended(how)
        order = {trial.id: at for at, trial in enumerate(plan.trials)}

        def place(result: AttemptResult) -> tuple[int, int]:
            trial, _, n = result.attempt_id.rpartition(".")
            return order[TrialId(trial)], int(n)

        return CampaignResult(
            campaign_id=opened.campaign_id,
            run_id=opened.run_id,
            paths=opened.paths,
            attempts=tuple(sorted(dispatcher.results, key=place)),
            redactor=Redactor(opened.ready.secrets),
            warnings=(
                *opened.warnings,
                *attempts.agents.warnings(),
                *attempts.spending.warnings(),
                *dispatcher.scheduler.warnings(),
                *self.health.warnings,
            ),
            how=how,
            failure=attempts.pool.failure,
        )

    @asynccontextmanager
    async def _open_dispatcher(self) -> AsyncIterator[Dispatcher]:
        """Open agents, model, ledger and disk for a dispatcher, and close them afterwards."""
        opened, plan = self.opened, self.opened.frozen.plan
        flows = {flow.id: flow for flow in plan.flows}
        async with AsyncExitStack() as stack:
            intents = await stack.enter_async_context(open_intents(places.spawns_dir()))
            await stack.enter_async_context(open_control(intents.folder, opened.paths, self.stops))
            sync = stack.enter_context(open_sync(self.root.folder))
            disk = None if sync is None else SharedSync(sync)
            agents = Agents(
                ready=opened.ready,
                paths=self.root.run(opened.run_id),
                scratch=opened.scratch,
                intents=intents,
                clock=self.clock,
                health=self.health,
                make_durable=None if disk is None else disk.make_durable,
                between=self.between,
            )
            await agents.open_model(stack, flows)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            commit = GroupCommit(opened.ledger, path=opened.paths.ledger)
            tasks.start_soon(commit.run)
            if disk is not None:
                tasks.start_soon(disk.run)
                # Closed after the agent processes, whose records are synced last.
                stack.callback(disk.close)
            hosts = await stack.enter_async_context(anyio.create_task_group())
            pool = HostPool(hosts, new_id=lambda: ProcessId(f"p-{chance.token_hex(6)}"), on_gone=agents.host_gone)
            attempts = AttemptRunner(
                loaded=self.loaded,
                opened=opened,
                root=self.root,
                hidden_from_probes=find_hidden_from_probes(self.loaded, root=self.root.folder),
                missions={mission.id: mission for mission in self.loaded.missions},
                flows=flows,
                priorities={flow.id: flow.priority for flow in self.loaded.spec.flows},
                clock=self.clock,
                watcher=self.watcher,
                stops=self.stops,
                agents=agents,
                pool=pool,
                commit=commit,
                spending=Spending(
                    usd_of=prices_of(self.loaded),
                    most_usd=plan.schedule.usd,
                    settled_usd=opened.usd,
                    unknown=opened.usd_unknown,
                ),
                disk=disk,
                is_scratch_kept=self.is_scratch_kept,
                decide=self.decide,
                decide_deadline_s=self.decide_deadline_s,
                starter=await stack.enter_async_context(self._open_starter(agents, pool)),
            )
            schedule = plan.schedule
            left_ms = math.inf if schedule.campaign_ms is None else schedule.campaign_ms - opened.took_ms
            yield Dispatcher(
                attempts=attempts,
                scheduler=Scheduler(
                    agents.limits(schedule),
                    backoff_s=schedule.backoff_ms / 1000,
                    start_interval_s=schedule.start_interval_ms / 1000,
                    seed=int.from_bytes(opened.run_id.encode()),
                    longest_wait_s=schedule.longest_wait_ms / 1000,
                ),
                # Twice as many, so that attempts that only wait for the disk leave no agent idle.
                most=2 * schedule.parallel,
                until_s=self.clock.steady_s() + left_ms / 1000,
                trials={trial.id: trial for trial in plan.trials},
                progress=dict(opened.progress),
                is_fail_fast=self.is_fail_fast,
            )
            pool.retire_all()
            commit.close()
        # After the agent processes have ended: one that no attempt used is counted then.
        await self.health.write(least=1)

    @asynccontextmanager
    async def _open_starter(self, agents: Agents, pool: HostPool) -> AsyncIterator[TrialStarter | None]:
        """Yield what decides how attempts start, with nothing kept of trials that are settled. None without it."""
        plan, known = self.opened.frozen.plan, self.opened.progress
        trials = KeptTrials.of(self.root, self.opened.campaign_id)
        if not plan.schedule.continue_after_wait:
            yield None
            return
        unsettled = [trial.id for trial in plan.trials if not known.get(trial.id, UNTRIED).is_settled]
        await anyio.to_thread.run_sync(trials.remove_except, unsettled)
        trials.open()
        try:
            yield TrialStarter(
                root=self.root,
                campaign_id=self.opened.campaign_id,
                trials=trials,
                agents=agents,
                pool=pool,
            )
        finally:
            # A trial that still waits has its folder; all others have removed theirs.
            with anyio.CancelScope(shield=True), anyio.move_on_after(REMOVE_S):
                await anyio.to_thread.run_sync(trials.remove_except, unsettled, abandon_on_cancel=True)

    def _how(self, dispatcher: Dispatcher) -> str:
        """Return how the run ended, for the ledger and the reports."""
        if dispatcher.is_done(self.opened.trials):
            return "done"
        is_refused = dispatcher.scheduler.stopped or dispatcher.scheduler.given_up
        return dispatcher.shut or ("refused" if is_refused else "unsettled")
