"""Run a campaign from the command line: confirm its cost, show progress, handle signals and write its report."""

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
from proctor.errors import Exit, InputError, MachineError, ProctorError, unwrap_single
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import TrialId
from proctor.ledger.reader import is_live
from proctor.report.campaign import CampaignReport, load_campaign_state
from proctor.report.campaign_state import campaigns_by_age
from proctor.report.find import root_of
from proctor.report.write_report import write_report
from proctor.spec.load import LoadedSpec
from proctor.surface.cli.confirm_cost import confirm_cost
from proctor.surface.cli.login_refusals import refused_logins
from proctor.surface.cli.progress import Progress, open_progress
from proctor.surface.cli.resume_campaign import can_resume, trials_due
from proctor.surface.cli.terminal_approvals import TerminalApprovals, is_interactive
from proctor.surface.estimate import estimate, may_cost
from proctor.surface.pricing import price_of

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = ("drained", "stopped")
_RUN_AGAIN = "Run it again."


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """The result of a run."""

    report: CampaignReport
    """Report of the campaign."""
    refused: tuple[InputError, ...]
    """Logins that a provider refused, one error per flow."""
    campaign: CampaignPaths
    """Folder of the campaign."""
    duration_ms: int
    """Duration of the run, in milliseconds."""
    scratch: Path | None
    """Folder with the run's workspaces and agent homes; None if they were deleted."""
    warnings: tuple[str, ...]
    """Problems that did not keep the run from ending normally."""
    how: str
    """`done`, or why the run stopped early."""
    tried: int
    """Number of attempts that the run made."""
    is_canary: bool
    """Whether the campaign is a canary."""


class CutOffError(ProctorError):
    """The user cut the run off. The recorded evidence is kept, but there is no report."""

    exit = Exit.INTERRUPTED


def drive(
    loaded: LoadedSpec,
    *,
    root: Path,
    is_agreed: bool,
    is_scratch_kept: bool = False,
    resume: CampaignPaths | None = None,
    only: Collection[TrialId] | None = None,
    replace_reason: str | None = None,
    is_canary: bool = False,
    is_unjudgeable_allowed: bool = False,
    is_fail_fast: bool = False,
    rows_to: Path | None = None,
) -> FinishedRun:
    """Run a campaign and write its report. Raises CutOffError if the user cuts the run off.

    Unless `is_agreed`, a run that may cost money must be confirmed at the terminal. `resume` is the campaign to resume,
    `only` the trials to run, `replace_reason` why scored results of them are replaced. `rows_to` is the file that
    progress events are appended to.
    """
    if not is_agreed and may_cost(loaded):
        confirm_cost(estimate(loaded, root=RootPaths(root), only=trials_due(resume, only=only)))
    before = set(RootPaths(root).campaigns())
    began_s = SYSTEM_CLOCK.steady_s()
    stops = StopSignals()

    async def run(progress: Progress) -> CampaignResult:
        approvals = TerminalApprovals(progress, deadline_s=DECIDE_S) if is_interactive() else None
        return await run_campaign(
            loaded,
            root=root,
            watcher=progress,
            stops=stops,
            is_scratch_kept=is_scratch_kept,
            decide=None if approvals is None else approvals.decide,
            decide_deadline_s=DECIDE_S,
            resume=resume,
            only=only,
            replace_reason=replace_reason,
            is_canary=is_canary,
            is_unjudgeable_allowed=is_unjudgeable_allowed,
            is_fail_fast=is_fail_fast,
        )

    with _root_named(root):
        result = anyio.run(_run_with_progress, loaded, stops, rows_to, run)
    if result is None:
        raise _cut_off(resume or _new_campaign(loaded.spec.campaign, root=RootPaths(root), before=before))
    report = write_report(
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


@contextmanager
def _root_named(root: Path) -> Iterator[None]:
    """Name the evidence root in the error if it could not be created."""
    try:
        yield
    except (MachineError, BaseExceptionGroup) as raised:
        error = unwrap_single(raised) if isinstance(raised, BaseExceptionGroup) else raised
        if isinstance(error, MachineError) and error.code == "machine.unwritable" and not root.exists():
            what = f"cannot create {root}: {error.what}"
            raise MachineError(error.code, what, suggestion="Pass another folder with --root.") from error
        raise


async def _run_with_progress(
    loaded: LoadedSpec, stops: StopSignals, rows_to: Path | None, run: Callable[[Progress], Awaitable[CampaignResult]]
) -> CampaignResult | None:
    result = None
    opened = open_progress(loaded.spec.campaign, trials=loaded.trial_count, rows_to=rows_to, price=price_of(loaded))
    async with opened as progress, anyio.create_task_group() as tasks:
        await tasks.start(_handle_signals, stops, progress, tasks.cancel_scope)
        with _error_as_end(progress):
            result = await run(progress)
        tasks.cancel_scope.cancel()
    return None if result is None else replace(result, warnings=(*result.warnings, *progress.warnings()))


@contextmanager
def _error_as_end(progress: Progress) -> Iterator[None]:
    """Report the end of the run to the progress displays if it ends with an error, too."""
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


async def _handle_signals(
    stops: StopSignals,
    progress: Progress,
    everything: anyio.CancelScope,
    *,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Handle signals: the first drains the run, the second stops it, the third cuts it off.

    SIGINT, SIGTERM and SIGHUP are counted together. DRAIN and STOP are sent by `campaign cancel`, and are not counted.
    """
    # A signal that is ignored was ignored from the start, for example by nohup.
    handled = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*handled, DRAIN, STOP) as signals:
        task_status.started()
        async for number in signals:
            is_counted = number not in (DRAIN, STOP)
            if stops.all.is_set():
                if is_counted:
                    progress.stopping("cutting off: the recorded evidence is kept, without a seal")
                    everything.cancel()
            elif number == STOP or (is_counted and stops.drain.is_set()):
                progress.stopping("stopping: running attempts are sealed as cancelled; Ctrl-C again cuts them off")
                stops.stop_all()
            elif not stops.drain.is_set():
                progress.stopping("finishing: running attempts finish, no new ones start; Ctrl-C again stops them")
                stops.drain.set()


def _new_campaign(name: str, *, root: RootPaths, before: set[CampaignPaths]) -> CampaignPaths | None:
    new = [each for each in campaigns_by_age(root) if each not in before and each.folder.name.startswith(f"{name}-")]
    ours = [each for each in new if not is_live(each)]  # another Proctor may be running beside this one
    return ours[-1] if ours else None


def _cut_off(campaign: CampaignPaths | None) -> CutOffError:
    """Return the error, with the folder of the evidence if anything was recorded."""
    if campaign is None:
        return CutOffError("run.interrupted", "interrupted before anything was recorded")
    root = root_of(campaign)
    runs = [
        folder for run in load_campaign_state(campaign, root=root).run_ids if (folder := root.run(run).folder).is_dir()
    ]
    resume = f"proctor campaign resume {shlex.quote(campaign.folder.name)}"
    return CutOffError(
        "run.cancelled",
        "cut off: the recorded evidence is kept, without a seal",
        file=str(runs[-1] if runs else campaign.folder),
        suggestion=resume if can_resume(campaign) else _RUN_AGAIN,
    )
