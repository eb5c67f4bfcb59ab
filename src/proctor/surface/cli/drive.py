"""A campaign run for somebody who watches and may interrupt, and the report of it, written beside its ledger."""

import os
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc
import msgspec

from proctor.campaign.run import CampaignResult, Stops, run_campaign
from proctor.campaign.scratch import scratch_of_runs
from proctor.clock import SYSTEM_CLOCK
from proctor.errors import Exit, MachineError, ProctorError
from proctor.evidence.layout import CampaignPaths, RootPaths, write_artifact, write_text_artifact
from proctor.evidence.reader import Problem
from proctor.report.compose import compose
from proctor.report.ledger import is_live
from proctor.report.markdown import render_markdown
from proctor.report.query import campaigns_by_age, find_campaign
from proctor.report.row import Report
from proctor.report.verdict import WORDS
from proctor.spec.load import LoadedSpec, load_spec
from proctor.surface.cli.progress import Progress, open_progress

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """What a run left. `scratch` is where its workspaces are, if they were to be kept."""

    report: Report
    campaign: CampaignPaths
    duration_ms: int
    scratch: Path | None


class CutOffError(ProctorError):
    """The user would not wait: what was recorded stays, without a report."""

    exit = Exit.INTERRUPTED


def drive(spec: Path, *, root: Path, is_scratch_kept: bool) -> Driven:
    """Run it to the end, or raise CutOffError."""
    loaded = load_spec(spec)
    before = set(RootPaths(root).campaigns())
    began_s = SYSTEM_CLOCK.steady_s()
    stops = Stops()
    result = anyio.run(_watched, loaded, root, is_scratch_kept, stops)
    if result is None:
        raise _cut_off(loaded.spec.campaign, root=RootPaths(root), before=before)
    report = _report(result, root=RootPaths(root), is_interrupted=stops.all.is_set())
    return Driven(
        report=_written(report, result, root=root),
        campaign=result.paths,
        duration_ms=round((SYSTEM_CLOCK.steady_s() - began_s) * 1000),
        scratch=scratch_of_runs() / result.run_id if is_scratch_kept else None,
    )


async def _watched(loaded: LoadedSpec, root: Path, is_scratch_kept: bool, stops: Stops) -> CampaignResult | None:
    spec = loaded.spec
    cells = len(spec.missions) * len(spec.flows) * spec.repeats
    result = None
    async with open_progress(spec.campaign, cells=cells) as progress, anyio.create_task_group() as tasks:
        await tasks.start(_obey_signals, stops, progress, tasks.cancel_scope)
        result = await run_campaign(loaded, root=root, watcher=progress, stops=stops, is_scratch_kept=is_scratch_kept)
        tasks.cancel_scope.cancel()
    return result


async def _obey_signals(
    stops: Stops,
    progress: Progress,
    everything: anyio.CancelScope,
    *,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """The first signal asks, whichever it is; the second insists."""
    # One that is ignored was so from the start, by nohup.
    heeded = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*heeded) as signals:
        task_status.started()
        async for _ in signals:
            if stops.all.is_set():
                progress.stopping("cutting off: what was recorded stays, without a seal")
                everything.cancel()
            else:
                progress.stopping("stopping: what is running is sealed as cancelled; Ctrl-C again cuts it off")
            stops.stop_all()


def _cut_off(name: str, *, root: RootPaths, before: set[CampaignPaths]) -> CutOffError:
    """With where the evidence is, if there is any yet."""
    new = [each for each in campaigns_by_age(root) if each not in before and each.folder.name.startswith(f"{name}-")]
    ours = [each for each in new if not is_live(each)]  # another Proctor may be at work beside
    if not ours:
        return CutOffError("run.cancelled", "interrupted before anything was recorded")
    campaign = ours[-1]
    runs = [folder for run in find_campaign(root, campaign).run_ids if (folder := root.run(run).folder).is_dir()]
    return CutOffError(
        "run.cancelled",
        "cut off: what was recorded stays, without a seal",
        file=str(runs[-1] if runs else campaign.folder),
        suggestion=f"proctor report {shlex.quote(campaign.folder.name)}",
    )


def _report(result: CampaignResult, *, root: RootPaths, is_interrupted: bool) -> Report:
    report = compose(find_campaign(root, result.paths), is_interrupted=is_interrupted)
    # Why there is no seal stands in no file of an attempt that could not be written.
    reasons = {each.attempt_id: str(each.error) for each in result.attempts if each.error is not None}
    rows = (msgspec.structs.replace(row, detail=row.detail or reasons.get(row.attempt_id)) for row in report.attempts)
    return msgspec.structs.replace(report, attempts=tuple(rows))


def _written(report: Report, result: CampaignResult, *, root: Path) -> Report:
    """What is kept names folders from the evidence root on, so that it stays true when that is moved."""
    campaign, redactor = result.paths, result.redactor
    rows = (msgspec.structs.replace(row, dir=os.path.relpath(row.dir, root)) for row in report.attempts)
    kept = msgspec.structs.replace(report, attempts=tuple(rows))
    try:
        write_artifact(campaign.report, kept, redactor=redactor)
        write_text_artifact(campaign.results, render_markdown(redactor.value(kept)), redactor=redactor)
    except MachineError as error:
        problem = Problem(code=error.code, file=error.file or campaign.report.name, detail=error.what)
        code = Exit.INFRASTRUCTURE if report.exit in (Exit.OK, Exit.JUDGED_NO, Exit.UNVERIFIED) else Exit(report.exit)
        return msgspec.structs.replace(report, exit=code, verdict=WORDS[code], problems=(*report.problems, problem))
    return report
