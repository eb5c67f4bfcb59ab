"""One attempt of a trial, from its row in the ledger to the durable seal."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from proctor.attempt.model import AttemptRequest, AttemptResult
from proctor.attempt.supervise import run_attempt
from proctor.attempt.watchdog import ClockName
from proctor.attempt.workspace_layout import WORKSPACE
from proctor.campaign.agents import Agents
from proctor.campaign.durable import SharedSync
from proctor.campaign.flow_engines import AttemptSession, SessionPlace, open_attempt_session
from proctor.campaign.hosts import HostPool
from proctor.campaign.kept_trials import KeptTrial
from proctor.campaign.open import OpenCampaign
from proctor.campaign.scratch import kept_workspace
from proctor.campaign.spending import Spending
from proctor.campaign.stops import StopSignals
from proctor.campaign.trial_starter import EarlierAttempt, TrialStart, TrialStarter
from proctor.campaign.watch import CampaignWatcher
from proctor.clock import Clock
from proctor.evidence.layout import RootPaths
from proctor.ids import AttemptId, FlowId, MissionId
from proctor.ledger import writer
from proctor.ledger.writer import GroupCommit
from proctor.plan.model import ResolvedFlow, Trial
from proctor.runtime.base import Decide
from proctor.runtime.resolve import Candidate
from proctor.spec.choices import Persistence
from proctor.spec.load import LoadedSpec
from proctor.spec.model import MissionSpec
from proctor.workspace.snapshot import EMPTY


@dataclass(slots=True, kw_only=True)
class AttemptRunner:
    """What all attempts of a run share."""

    loaded: LoadedSpec
    opened: OpenCampaign
    root: RootPaths
    hidden_from_probes: tuple[Path, ...]
    missions: Mapping[MissionId, MissionSpec]
    flows: Mapping[FlowId, ResolvedFlow]
    priorities: Mapping[FlowId, int]
    clock: Clock
    watcher: CampaignWatcher
    stops: StopSignals
    agents: Agents
    pool: HostPool
    commit: GroupCommit
    spending: Spending
    disk: SharedSync | None
    is_scratch_kept: bool
    decide: Decide | None
    decide_deadline_s: float
    starter: TrialStarter | None
    """Decides how attempts start. None without `schedule.continue_after_wait`: then all start fresh."""

    async def choose(self, trial: Trial) -> Candidate:
        """Return the runtime to use: the first of the flow's chain that starts."""
        return await self.agents.choose(self.flows[trial.flow], self.pool)

    async def run(
        self,
        trial: Trial,
        *,
        n: int,
        candidate: Candidate,
        before: EarlierAttempt | None,
        started_at_ms: int,
        left: tuple[ClockName, int] | None,
        at_rest: Callable[[], None],
    ) -> AttemptResult:
        """Record the attempt as running, then run it. If the result has a seal, the seal is durable on return.

        `before` is the attempt of the trial before it.
        """
        attempt = AttemptId(f"{trial.id}.{n}")
        stop = self.stops.of(attempt)
        run_id = self.opened.run_id
        mission, flow = self.missions[trial.mission], self.flows[trial.flow]
        facts, sight = self.agents.facts(flow, candidate), self.agents.sight(flow, candidate)
        start = TrialStart()
        if self.starter is not None:
            start = await self.starter.start(trial, flow, candidate, before=before)
        continuation = start.continuation
        place = self.agents.place(flow, candidate, self.pool, kept=start.folders)
        await self.commit.put(writer.start_attempt(attempt, trial=trial.id, n=n, run=run_id, at_ms=started_at_ms))
        self.watcher.started(attempt, runtime_id=candidate.runtime_id)
        script = None
        if mission.script is not None:
            whole = self.opened.ready.scripts[mission.script]
            script = whole.for_attempt(is_continued=continuation is not None)
        async with AsyncExitStack() as stack:
            model = stack.enter_context(self.agents.playing(attempt, script, flow, candidate))
            opened = await self._open_session(stack, attempt, flow, candidate, start.kept)
            frozen, key = self.opened.frozen, mission.workspace.key
            ask = AttemptRequest(
                attempt_id=attempt,
                n=n,
                campaign_id=self.opened.campaign_id,
                run_id=run_id,
                plan_digest=frozen.plan.digest,
                plan_file_digest=self.opened.plan_file_digest,
                trial=trial,
                mission=self.loaded.mission_for(mission, flow.id),
                flow=flow,
                limits=frozen.plan.limits,
                paths=self.root.run(run_id).attempt(trial.id, n=n),
                scratch=self.agents.workspaces / attempt if start.kept is None else start.kept.agent,
                judging=self.agents.judging / attempt,
                workspace_source=None if key is None else frozen.workspaces[key],
                workspace_digest=EMPTY.digest if key is None else frozen.workspace_digests[key],
                runtime=candidate.runtime,
                lease=place.lease,
                model=model,
                script_misfit=lambda: self.agents.script_misfit(attempt),
                secrets=self.opened.ready.secrets,
                containment=self.opened.ready.containment,
                intents=self.agents.intents,
                clock=self.clock,
                watcher=self.spending.watcher(trial.flow, self.watcher),
                hidden=self.hidden_from_probes,
                hidden_from_agent=sight.hidden,
                visible_to_agent=sight.visible,
                sources=self.loaded.sources,
                hidden_files=frozen.overlay_of(mission),
                spec_folder=self.loaded.folder,
                facts=facts,
                tools=() if opened is None else opened.tools,
                is_persistent=start.kept is not None or flow.persistence is Persistence.PERSISTENT,
                kept=None if opened is None else opened.kept,
                context=None if opened is None else opened.context,
                refusal=None if opened is None else opened.refusal,
                resume=None if continuation is None else continuation.taken.thread_id,
                is_kept=start.kept is not None,
                continuation=continuation,
                fresh_start=start.fresh_start,
                decide=self.decide,
                decide_deadline_s=self.decide_deadline_s,
                stop=stop,
                stop_cause=lambda: self.stops.cause(attempt),
                turn_over=lambda: self.stops.turn_over(attempt),
                is_scratch_kept=self.is_scratch_kept,
                keep_workspace=self._keep_workspace(attempt, is_kept=start.kept is not None),
                make_durable=None if self.disk is None else self.disk.make_durable,
                left=left,
                at_rest=at_rest,
            )
            result = await run_attempt(ask)
        if self.starter is not None:
            await self.starter.ended(start, result)
        self.stops.ended(attempt)
        if result.summary is not None:
            place.ended(result.summary.outcome, result.summary.code)
            self.agents.ended(flow, candidate, outcome=result.summary.outcome, code=result.summary.code)
            await self.agents.health.write()
            if self.disk is not None:
                # The seal must be durable before the ledger says that it exists.
                await self.disk.make_durable()
        return result

    async def _open_session(
        self,
        stack: AsyncExitStack,
        attempt: AttemptId,
        flow: ResolvedFlow,
        candidate: Candidate,
        kept: KeptTrial | None,
    ) -> AttemptSession | None:
        """Open the session of an attempt until `stack` is closed; None if the flow has no context engine."""
        engine = self.opened.ready.engines.get(flow.id)
        if engine is None:
            return None
        run_id = self.opened.run_id
        # Its id is unique, because an engine may keep something of a session elsewhere, too.
        name = f"{run_id}.{attempt}"
        place = SessionPlace(folder=self.agents.sessions / name, is_kept=self.is_scratch_kept)
        if kept is not None:
            place = SessionPlace(folder=kept.session or kept.sessions / name, is_kept=True)
        return await stack.enter_async_context(
            open_attempt_session(
                engine,
                place,
                root=self.root,
                run_id=run_id,
                attempt=attempt,
                flow=flow,
                candidate=candidate,
                is_ephemeral=kept is None and flow.persistence is Persistence.EPHEMERAL,
                clock=self.clock,
            )
        )

    def _keep_workspace(self, attempt: AttemptId, *, is_kept: bool) -> Path | None:
        """Return where the user wants the workspace. One that is kept for the next attempt is copied there."""
        if self.is_scratch_kept:
            return self.agents.workspaces / attempt / WORKSPACE if is_kept else None
        return kept_workspace(self.opened.scratch, attempt) if self.loaded.spec.keep.workspaces else None
