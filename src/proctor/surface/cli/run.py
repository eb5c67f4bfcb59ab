"""`proctor run`."""

from pathlib import Path

from proctor.evidence.layout import RootPaths
from proctor.report.text import render_report
from proctor.report.words import duration
from proctor.spec.running import SelectSpec
from proctor.surface.cli.blocks import error_block
from proctor.surface.cli.calling import Calling
from proctor.surface.cli.closing import closing
from proctor.surface.cli.command import JSON, PROGRESS, ROOT, Command, argument, evidence_root
from proctor.surface.cli.drive import Driven, drive
from proctor.surface.cli.output import Output
from proctor.surface.cli.paying import show
from proctor.surface.cli.row_stream import STDOUT
from proctor.surface.cli.selecting import SELECT, load_selected
from proctor.surface.estimate import estimate


def run(
    *,
    spec: Path,
    is_dry: bool,
    is_agreed: bool,
    root: Path | None,
    as_json: bool,
    is_scratch_kept: bool,
    rows_to: Path | None,
    select: SelectSpec,
) -> int:
    """Run a campaign, keep its evidence, and judge it.

    Every mission of SPEC goes through every flow. Ctrl-C (or SIGTERM, SIGHUP) once
    lets what is running finish; twice stops it, sealed as cancelled; three times cuts it
    off. `proctor campaign resume` goes on from there. Where it may cost money, somebody must agree.
    """
    folder, loaded = evidence_root(root), load_selected(spec, select)
    if is_dry:
        return show(estimate(loaded, root=RootPaths(folder)), as_json=as_json)
    driven = drive(loaded, root=folder, is_scratch_kept=is_scratch_kept, is_agreed=is_agreed, rows_to=rows_to)
    return tell(driven, root=root, as_json=as_json, rows_to=rows_to)


def tell(
    driven: Driven, *, root: Path | None, as_json: bool, rows_to: Path | None = None, why_idle: str | None = None
) -> int:
    """The report of a run, and what to do next; gives its exit code. `why_idle` is why nothing may have been tried."""
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
        output.show(closing(driven, calling=Calling.of(root)), is_wrapped=False)
    output.note(*(f"warning: {each}" for each in driven.warnings))
    output.note(*(error_block(each, Calling.of(root)) for each in driven.refused))
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
    help="Run nothing: tell the cells, the time at full length, and the cost as far as it was measured.",
)

COMMANDS = {
    "run": Command(
        call=run,
        example="proctor run examples/quickstart.yaml",
        arguments=(SPEC, *SELECT, DRY_RUN, YES, KEEP_SCRATCH, PROGRESS, ROOT, JSON),
    )
}
