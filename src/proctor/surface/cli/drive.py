"""A campaign run for somebody who watches and may interrupt, and the report of it, written beside its ledger."""

import shlex
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.abc

from proctor.attempt.model import DECIDE_S
from proctor.campaign.run import CampaignResult, run_campaign
from proctor.campaign.scratch import scratch_of_runs
from proctor.campaign.stops import DRAIN, STOP, StopSignals
from proctor.clock import SYSTEM_CLOCK
from proctor.errors import Exit, InputError, ProctorError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import TrialId
from proctor.ledger.reader import is_live
from proctor.report.find import root_of
from proctor.report.query import campaigns_by_age, find_campaign
from proctor.report.row import Report
from proctor.report.write_report import keep_report
from proctor.spec.load import LoadedSpec
from proctor.surface.cli.confirm_cost import agree
from proctor.surface.cli.login_refusals import refused_logins
from proctor.surface.cli.progress import Progress, open_progress
from proctor.surface.cli.resume_campaign import can_resume, trials_due
from proctor.surface.cli.terminal_approvals import TerminalApprovals, is_somebody_there
from proctor.surface.estimate import estimate, may_cost
from proctor.surface.pricing import price_of

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = ("drained", "stopped")
_ANEW = "Run it anew."


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """What a run left, and `how` it ended. `scratch` is where its workspaces are, if they were to be kept.

    `tried` is how many attempts it made.
    """

    report: Report
    refused: tuple[InputError, ...]
    campaign: CampaignPaths
    duration_ms: int
    scratch: Path | None
    warnings: tuple[str, ...]
    how: str
    tried: int
    is_canary: bool


class CutOffError(ProctorError):
    """The user would not wait: what was recorded stays, without a report."""

    exit = Exit.INTERRUPTED


def drive(
    loaded: LoadedSpec,
    *,
    root: Path,
    is_agreed: bool,
    is_scratch_kept: bool = False,
    resume: CampaignPaths | None = None,
    only: Collection[TrialId] | None = None,
    is_canary: bool = False,
    rows_to: Path | None = None,
) -> FinishedRun:
    """Run it to the end, or raise CutOffError. Unless it is agreed to what it may cost, somebody is asked.

    `rows_to` is where a program reads along.
    """
    if not is_agreed and may_cost(loaded):
        agree(estimate(loaded, root=RootPaths(root), only=trials_due(resume, only=only)))
    before = set(RootPaths(root).campaigns())
    began_s = SYSTEM_CLOCK.steady_s()
    stops = StopSignals()

    async def run(progress: Progress) -> CampaignResult:
        asking = TerminalApprovals(progress, deadline_s=DECIDE_S) if is_somebody_there() else None
        return await run_campaign(
            loaded,
            root=root,
            watcher=progress,
            stops=stops,
            is_scratch_kept=is_scratch_kept,
            decide=None if asking is None else asking.decide,
            decide_deadline_s=DECIDE_S,
            resume=resume,
            only=only,
            is_canary=is_canary,
        )

    result = anyio.run(_watched, loaded, stops, rows_to, run)
    if result is None:
        raise _cut_off(resume or _new_campaign(loaded.spec.campaign, root=RootPaths(root), before=before))
    report = keep_report(
        result.paths,
        root=root,
        redactor=result.redactor,
        reasons={each.attempt_id: str(each.error) for each in result.attempts if each.error is not None},
        is_interrupted=result.how in _INTERRUPTED,
    )
    if result.failure is not None:
        raise result.failure
    return FinishedRun(
        refused=refused_logins(loaded, result, root=RootPaths(root)),
        report=report,
        campaign=result.paths,
        duration_ms=round((SYSTEM_CLOCK.steady_s() - began_s) * 1000),
        scratch=scratch_of_runs() / result.run_id if is_scratch_kept else None,
        warnings=result.warnings,
        how=result.how,
        tried=len(result.attempts),
        is_canary=is_canary,
    )


async def _watched(
    loaded: LoadedSpec, stops: StopSignals, rows_to: Path | None, run: Callable[[Progress], Awaitable[CampaignResult]]
) -> CampaignResult | None:
    result = None
    watching = open_progress(loaded.spec.campaign, trials=loaded.trial_count, rows_to=rows_to, price=price_of(loaded))
    async with watching as progress, anyio.create_task_group() as tasks:
        await tasks.start(_obey_signals, stops, progress, tasks.cancel_scope)
        with _error_told(progress):
            result = await run(progress)
        tasks.cancel_scope.cancel()
    return None if result is None else replace(result, warnings=(*result.warnings, *progress.warnings()))


@contextmanager
def _error_told(progress: Progress) -> Iterator[None]:
    """Whoever reads along is told of every end, whatever it is."""
    how = "run.harness"
    try:
        yield
        how = ""
    except anyio.get_cancelled_exc_class():
        how = "run.cancelled"
        raise
    except ProctorError as error:
        how = error.code
        raise
    finally:
        if how:
            progress.ended(how)


async def _obey_signals(
    stops: StopSignals,
    progress: Progress,
    everything: anyio.CancelScope,
    *,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """The first signal of people asks, whichever it is; the second insists, and the third will not wait."""
    # One that is ignored was so from the start, by nohup.
    heeded = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*heeded, DRAIN, STOP) as signals:
        task_status.started()
        async for number in signals:
            is_counted = number not in (DRAIN, STOP)
            if stops.all.is_set():
                if is_counted:
                    progress.stopping("cutting off: what was recorded stays, without a seal")
                    everything.cancel()
            elif number == STOP or (is_counted and stops.drain.is_set()):
                progress.stopping("stopping: what is running is sealed as cancelled; Ctrl-C again cuts it off")
                stops.stop_all()
            elif not stops.drain.is_set():
                progress.stopping("ending: what is running finishes, nothing new begins; Ctrl-C again stops it")
                stops.drain.set()


def _new_campaign(name: str, *, root: RootPaths, before: set[CampaignPaths]) -> CampaignPaths | None:
    new = [each for each in campaigns_by_age(root) if each not in before and each.folder.name.startswith(f"{name}-")]
    ours = [each for each in new if not is_live(each)]  # another Proctor may be at work beside
    return ours[-1] if ours else None


def _cut_off(campaign: CampaignPaths | None) -> CutOffError:
    """With where the evidence is, if there is any yet."""
    if campaign is None:
        return CutOffError("run.cancelled", "interrupted before anything was recorded", suggestion=_ANEW)
    root = root_of(campaign)
    runs = [folder for run in find_campaign(root, campaign).run_ids if (folder := root.run(run).folder).is_dir()]
    resume = f"proctor campaign resume {shlex.quote(campaign.folder.name)}"
    return CutOffError(
        "run.cancelled",
        "cut off: what was recorded stays, without a seal",
        file=str(runs[-1] if runs else campaign.folder),
        suggestion=resume if can_resume(campaign) else _ANEW,
    )
