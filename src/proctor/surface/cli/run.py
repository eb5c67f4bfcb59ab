"""`proctor run`."""

from collections.abc import Collection
from pathlib import Path
from typing import TypedDict, Unpack

from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import TrialId
from proctor.report.format_values import duration
from proctor.report.text import render_report
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.load import LoadedSpec
from proctor.surface.cli.blocks import error_block
from proctor.surface.cli.command import JSON, PROGRESS, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.confirm_cost import show
from proctor.surface.cli.drive import FinishedRun, drive
from proctor.surface.cli.output import Output
from proctor.surface.cli.resume_campaign import trials_due
from proctor.surface.cli.row_stream import STDOUT
from proctor.surface.cli.run_summary import closing
from proctor.surface.cli.select_missions import SELECT, load_selected
from proctor.surface.estimate import estimate


class RunOptions(TypedDict):
    """What every command that runs trials is told."""

    is_dry: bool
    is_agreed: bool
    is_scratch_kept: bool
    rows_to: Path | None
    root: Path | None
    as_json: bool


def run(*, spec: Path, select: SelectSpec, **how: Unpack[RunOptions]) -> int:
    """Run a campaign, keep its evidence, and judge it.

    Every mission of SPEC goes through every flow. Ctrl-C (or SIGTERM, SIGHUP) once
    lets what is running finish; twice stops it, sealed as cancelled; three times cuts it
    off. `proctor campaign resume` goes on from there. Where it may cost money, somebody must agree.
    """
    folder = evidence_root(how["root"])
    return carry_out(load_selected(spec, select), folder=folder, **how)


def carry_out(
    loaded: LoadedSpec,
    *,
    folder: Path,
    resume: CampaignPaths | None = None,
    only: Collection[TrialId] | None = None,
    is_canary: bool = False,
    why_idle: str | None = None,
    **how: Unpack[RunOptions],
) -> int:
    """Run it and tell what came of it; or only what would be run, where it is dry. Gives the exit code.

    Evidence is kept in `folder`. `why_idle` is why nothing may have been tried.
    """
    root, as_json, rows_to = how["root"], how["as_json"], how["rows_to"]
    if how["is_dry"]:
        told = estimate(loaded, root=RootPaths(folder), only=trials_due(resume, only=only))
        return show(told, as_json=as_json, why_idle=why_idle)
    driven = drive(
        loaded,
        root=folder,
        is_agreed=how["is_agreed"],
        is_scratch_kept=how["is_scratch_kept"],
        resume=resume,
        only=only,
        is_canary=is_canary,
        rows_to=rows_to,
    )
    return _tell(driven, root=root, as_json=as_json, rows_to=rows_to, why_idle=why_idle)


def _tell(driven: FinishedRun, *, root: Path | None, as_json: bool, rows_to: Path | None, why_idle: str | None) -> int:
    """The report of a run, and what to do next."""
    output = Output(is_json=as_json)
    report = driven.report
    if rows_to == STDOUT:
        pass  # it belongs to the rows
    elif as_json:
        output.json(report)
    else:
        if why_idle is not None and driven.how == "done" and not driven.tried:
            output.text(f"Nothing to try: {why_idle}.\n\n")
        output.show(render_report(report, title=f"{report.campaign_id}  in {duration(driven.duration_ms)}"))
        output.show(closing(driven, calling=CommandFormatter.of(root)), is_wrapped=False)
    output.note(*(f"warning: {each}" for each in driven.warnings))
    output.note(*(error_block(each, CommandFormatter.of(root)) for each in driven.refused))
    return report.exit


SPEC = argument("spec", metavar="SPEC", type=Path, help="The campaign: a YAML file.")
KEEP_SCRATCH = argument(
    "--keep-scratch",
    dest="is_scratch_kept",
    action="store_true",
    help="Leave workspaces and agent homes where they are.",
)
YES = argument("--yes", dest="is_agreed", action="store_true", help="Agree to what it may cost.")
DRY_RUN = argument(
    "--dry-run",
    dest="is_dry",
    action="store_true",
    help="Run nothing: tell the trials, the time at full length, and the cost as far as it was measured.",
)

HOW = (DRY_RUN, YES, KEEP_SCRATCH, PROGRESS, ROOT, JSON)
"""Together they fill `RunOptions`."""

COMMANDS = {
    "run": Command(
        call=run,
        example="proctor run examples/quickstart.yaml",
        arguments=(SPEC, *SELECT, *HOW),
    )
}
