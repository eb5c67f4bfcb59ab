"""Opens a campaign for a run: freezes a new one, or resumes an existing one from its sealed attempts."""

import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from proctor.campaign.check_probes import ProbeChecker
from proctor.campaign.freeze import FrozenSpec, freeze, thaw
from proctor.campaign.hiding import find_hidden_from_probes
from proctor.campaign.lock import campaign_lock
from proctor.campaign.preflight import PreflightResult, preflight
from proctor.campaign.reconcile import adopt, reconcile
from proctor.campaign.scratch import open_scratch
from proctor.campaign.spending import prices_of
from proctor.campaign.stamp import stamp
from proctor.campaign.throttle import longest_pause_s
from proctor.campaign.watch import CampaignWatcher
from proctor.campaign.windows import Window, shut_windows
from proctor.canonical import digest_bytes
from proctor.clock import Clock
from proctor.errors import InputError, MachineError
from proctor.evidence.artifacts import PlanFile
from proctor.evidence.layout import CampaignPaths, RootPaths, write_artifact
from proctor.evidence.reader import read_bytes
from proctor.evidence.redact import Redactor
from proctor.ids import CampaignId, Digest, RunId, TrialId
from proctor.ledger.reader import has_runs
from proctor.ledger.schema import LedgerAttempt, LedgerReplacement, replaced_from
from proctor.ledger.writer import Ledger, open_ledger
from proctor.plan.model import Plan, Trial
from proctor.plan.progress import UNTRIED, RetryBudget, TrialProgress, fold_trials
from proctor.plan.remaining import remaining
from proctor.spec.load import LoadedSpec
from proctor.workspace.remove import remove


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCampaign:
    """A campaign whose lock this process holds. If `trials` is empty, no run has begun."""

    campaign_id: CampaignId
    run_id: RunId
    paths: CampaignPaths
    ready: PreflightResult
    frozen: FrozenSpec
    plan_file_digest: Digest
    ledger: Ledger
    scratch: Path
    trials: tuple[Trial, ...]
    """The trials to run."""
    retry_budget: RetryBudget
    progress: Mapping[TrialId, TrialProgress]
    """The progress of each trial in earlier runs."""
    due: Mapping[TrialId, int]
    """When a trial may be tried again (wall clock, ms), if it must still wait."""
    windows: tuple[Window, ...]
    """Quotas that earlier runs found used up and that have not reopened."""
    took_ms: int
    """Time that earlier runs took."""
    usd: float
    """Known cost of earlier runs."""
    usd_unknown: int
    """Attempts of earlier runs whose cost is not known."""
    warnings: tuple[str, ...]
    """What the preflight found that did not stop the run."""


@asynccontextmanager
async def open_campaign(
    loaded: LoadedSpec,
    *,
    root: Path,
    clock: Clock,
    is_scratch_kept: bool,
    resume: CampaignPaths | None = None,
    only: Collection[TrialId] | None = None,
    replace_reason: str | None = None,
    is_canary: bool = False,
    watcher: CampaignWatcher,
    stop: anyio.Event,
    is_unjudgeable_allowed: bool = False,
) -> AsyncIterator[OpenCampaign]:
    """Open a campaign with its lock held and its ledger open. A new one that could not begin leaves nothing behind.

    Its trials are those that are not settled; or, with `only`, exactly these, settled or not and without any wait.
    Raises InputError if one of these has a scored result and no `replace_reason` is given; and, unless
    `is_unjudgeable_allowed`, InputError or MachineError if a probe of these trials could not judge them. `stop` ends
    the check of the probes early.
    """
    run_id = RunId(stamp(clock))
    place = _place(loaded, root=root, clock=clock, resume=resume, is_canary=is_canary)
    async with AsyncExitStack() as stack:
        paths, ready = await stack.enter_async_context(place)
        redactor = Redactor(ready.secrets)
        scratch = stack.enter_context(open_scratch(run_id, is_kept=is_scratch_kept))
        bases = scratch / "bases"

        def frozen_spec() -> FrozenSpec:
            if resume is not None:
                return thaw(loaded, paths=paths, workspaces=bases, redactor=redactor)
            return freeze(loaded, paths=paths, workspaces=bases, redactor=redactor, is_canary=is_canary)

        frozen = await anyio.to_thread.run_sync(frozen_spec)
        if resume is not None and not has_runs(paths.ledger):
            # A new ledger would run every trial again, and the sealed attempts would belong to no campaign.
            what = f"{paths.folder.name} has a plan, but its ledger has no runs"
            raise MachineError("machine.ledger", what, file=str(paths.ledger))
        ledger = stack.enter_context(open_ledger(paths.ledger))
        campaign_id = CampaignId(paths.folder.name)
        if resume is not None:
            lost = adopt(ledger, frozen.plan, root=RootPaths(root), campaign_id=campaign_id, at_ms=clock.wall_ms())
            ledger.apply(list(lost))
        running, usd_of = ledger.attempts(state="running"), prices_of(loaded)
        ledger.apply(list(reconcile(running, root=RootPaths(root), at_ms=clock.wall_ms(), usd_of=usd_of)))
        plan, now_ms = frozen.plan, clock.wall_ms()
        retry_budget = RetryBudget(retries=plan.schedule.retries, mission_ms=plan.schedule.mission_ms)
        tried, took_ms = ledger.attempts(), ledger.took_ms()
        replaced = replaced_from(ledger.replacements())
        known = fold_trials(tried, retry_budget=retry_budget, replaced_from=replaced)
        usd, usd_unknown = ledger.spent()
        trials = _to_try(plan, known, only=only)
        taken_up = {trial.id: known.get(trial.id, UNTRIED).for_new_run(retry_budget=retry_budget) for trial in trials}
        scored = [id_ for id_, progress in taken_up.items() if progress.is_scored and only is not None]
        require_reason(scored, replace_reason)
        reason = redactor.text(replace_reason or "").text
        replacements = [
            LedgerReplacement(trial=id_, n=taken_up[id_].attempts_made + 1, run=run_id, reason=reason, at_ms=now_ms)
            for id_ in scored
        ]
        taken_up |= {id_: taken_up[id_].for_replacement() for id_ in scored}
        if only is not None:
            # The user asked for these trials now, so nothing is waited for.
            tried, taken_up = [], {id_: progress.without_wait() for id_, progress in taken_up.items()}
        known = {**known, **taken_up}
        checker = ProbeChecker(
            loaded=loaded,
            frozen=frozen,
            scratch=scratch,
            hidden=find_hidden_from_probes(loaded, root=root),
            containment=ready.containment,
            redactor=redactor,
            parallel=plan.schedule.parallel,
            watcher=watcher,
            stop=stop,
        )
        checks = await checker.check(trial.mission for trial in trials)
        if not is_unjudgeable_allowed:
            checks.refuse()
        if trials:
            # If the path contains a secret it is masked here, and `resume` needs the path of the spec.
            file = "" if loaded.is_built else redactor.text(str(loaded.path)).text
            ledger.begin(plan, run=run_id, at_ms=now_ms, file=file, spec=loaded.digest, replacements=replacements)
        if resume is None:
            # Written last: a campaign without a plan was cut off before anything ran.
            write_artifact(paths.plan, PlanFile(plan=plan, snapshot=dict(frozen.snapshot)), redactor=redactor)
        yield OpenCampaign(
            campaign_id=campaign_id,
            run_id=run_id,
            paths=paths,
            ready=ready,
            frozen=frozen,
            plan_file_digest=digest_bytes(read_bytes(paths.plan)),
            ledger=ledger,
            scratch=scratch,
            trials=trials,
            retry_budget=retry_budget,
            progress=known,
            due=dict(_due(trials, known, plan=plan, now_ms=now_ms)),
            windows=tuple(_windows(tried, plan=plan, ready=ready, now_ms=now_ms)),
            took_ms=took_ms,
            usd=usd,
            usd_unknown=usd_unknown,
            warnings=(*ready.warnings, *checks.warnings()),
        )


def require_reason(scored: Sequence[TrialId], reason: str | None) -> None:
    """Raise InputError if trials with a scored result would be tried again without a reason to replace it."""
    if scored and not (reason or "").strip():
        first = ", ".join(scored[:3]) + (f" and {len(scored) - 3:,} more" if len(scored) > 3 else "")
        what = f"{len(scored):,} of the selected trials already have a scored result: {first}"
        raise InputError("campaign.scored-result", what)


def _to_try(
    plan: Plan, known: Mapping[TrialId, TrialProgress], *, only: Collection[TrialId] | None
) -> tuple[Trial, ...]:
    if only is not None:
        return tuple(trial for trial in plan.trials if trial.id in only)
    return remaining(plan, {id_ for id_, progress in known.items() if progress.is_settled})


def _due(
    trials: Sequence[Trial], known: Mapping[TrialId, TrialProgress], *, plan: Plan, now_ms: int
) -> Iterator[tuple[TrialId, int]]:
    longest_ms = _longest_ms(plan)
    for trial in trials:
        wait = known.get(trial.id, UNTRIED).wait
        if wait is not None and (at_ms := wait.ends_at_ms(now_ms, longest_ms=longest_ms)) is not None:
            yield trial.id, at_ms


def _windows(tried: Sequence[LedgerAttempt], *, plan: Plan, ready: PreflightResult, now_ms: int) -> Iterator[Window]:
    flows = {flow.id: flow for flow in plan.flows}
    flow_of = {trial.id: flows[trial.flow] for trial in plan.trials} if tried else {}

    def keys(each: LedgerAttempt) -> tuple[str, ...] | None:
        flow, runtime_id = flow_of[each.trial], each.runtime_id
        identity = None if runtime_id is None else ready.identities.get((flow.id, runtime_id))
        return None if identity is None or runtime_id is None else identity.keys(flow, runtime_id)

    return shut_windows(tried, keys=keys, now_ms=now_ms, longest_ms=_longest_ms(plan))


def _longest_ms(plan: Plan) -> int:
    return round(longest_pause_s(plan.schedule.longest_wait_ms / 1000) * 1000)


@asynccontextmanager
async def _place(
    loaded: LoadedSpec, *, root: Path, clock: Clock, resume: CampaignPaths | None, is_canary: bool
) -> AsyncIterator[tuple[CampaignPaths, PreflightResult]]:
    """Lock the campaign's folder and run the preflight checks."""
    if resume is not None:
        # Lock first: a process that loses the race for the lock has read and changed nothing.
        with campaign_lock(resume):
            yield resume, await preflight(loaded, root=root, clock=clock)
        return
    ready = await preflight(loaded, root=root, clock=clock)
    name = f"{loaded.spec.campaign}-canary" if is_canary else loaded.spec.campaign
    with _new_folder(RootPaths(root).campaign(CampaignId(f"{name}-{stamp(clock)}"))) as paths:
        yield paths, ready


@contextmanager
def _new_folder(paths: CampaignPaths) -> Iterator[CampaignPaths]:
    paths.create()
    try:
        with campaign_lock(paths):
            yield paths
    finally:
        if not os.path.lexists(paths.plan):
            # Nothing ran, so there is nothing to keep; an incomplete campaign would look damaged.
            with suppress(OSError):
                remove(paths.folder)
