"""A campaign run for somebody who watches and may interrupt, and the report of it, written beside its ledger."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc
import msgspec

from proctor.campaign.run import CampaignResult, Stops, run_campaign
from proctor.campaign.scratch import scratch_of_runs
from proctor.clock import SYSTEM_CLOCK
from proctor.errors import Exit, MachineError
from proctor.evidence.layout import CampaignPaths, RootPaths, write_artifact, write_text_artifact
from proctor.evidence.reader import Problem
from proctor.report.compose import compose
from proctor.report.markdown import render_markdown
from proctor.report.query import find_campaign
from proctor.report.row import Report
from proctor.report.verdict import WORDS
from proctor.spec.load import LoadedSpec, load_spec
from proctor.surface.cli.progress import Progress, open_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """What a run left. `scratch` is where its workspaces are, if they were to be kept."""

    report: Report
    campaign: CampaignPaths
    duration_ms: int
    scratch: Path | None


def drive(spec: Path, *, root: Path, is_scratch_kept: bool) -> Driven:
    """Run it to the end. KeyboardInterrupt where it was cut off: then what was recorded stays, without a report."""
    loaded = load_spec(spec)
    began_s = SYSTEM_CLOCK.steady_s()
    stops = Stops()
    result = anyio.run(_watched, loaded, root, is_scratch_kept, stops)
    if result is None:
        raise KeyboardInterrupt
    report = _report(result, root=RootPaths(root), is_interrupted=stops.all.is_set())
    return Driven(
        report=_written(report, campaign=result.paths, root=root),
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
    """The first Ctrl-C asks; the second, and any SIGTERM, insists."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGTERM or stops.all.is_set():
                progress.stopping("cutting off: what was recorded stays, without a seal")
                everything.cancel()
            else:
                progress.stopping("stopping: what is running is sealed as cancelled; Ctrl-C again cuts it off")
            stops.stop_all()


def _report(result: CampaignResult, *, root: RootPaths, is_interrupted: bool) -> Report:
    report = compose(find_campaign(root, result.paths), is_interrupted=is_interrupted)
    # Why there is no seal stands in no file of an attempt that could not be written.
    reasons = {each.attempt_id: str(each.error) for each in result.attempts if each.error is not None}
    rows = (msgspec.structs.replace(row, detail=row.detail or reasons.get(row.attempt_id)) for row in report.attempts)
    return msgspec.structs.replace(report, attempts=tuple(rows))


def _written(report: Report, *, campaign: CampaignPaths, root: Path) -> Report:
    """What is kept names folders from the evidence root on, so that it stays true when that is moved."""
    rows = (msgspec.structs.replace(row, dir=os.path.relpath(row.dir, root)) for row in report.attempts)
    kept = msgspec.structs.replace(report, attempts=tuple(rows))
    try:
        write_artifact(campaign.report, kept)
        write_text_artifact(campaign.results, render_markdown(kept))
    except MachineError as error:
        problem = Problem(code=error.code, file=error.file or campaign.report.name, detail=error.what)
        code = Exit.INFRASTRUCTURE if report.exit in (Exit.OK, Exit.JUDGED_NO, Exit.UNVERIFIED) else Exit(report.exit)
        return msgspec.structs.replace(report, exit=code, verdict=WORDS[code], problems=(*report.problems, problem))
    return report
