"""`proctor run`."""

from pathlib import Path

from proctor.report.text import render_report
from proctor.report.words import duration
from proctor.spec.load import load_spec
from proctor.surface.cli.blocks import error_block
from proctor.surface.cli.calling import Calling
from proctor.surface.cli.closing import closing
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.drive import drive
from proctor.surface.cli.output import Output


def run(*, spec: Path, root: Path | None, as_json: bool, is_scratch_kept: bool) -> int:
    """Run a campaign, keep its evidence, and judge it.

    Every mission of SPEC goes through every flow. Ctrl-C (or SIGTERM, SIGHUP) once
    stops: what is running ends, sealed as cancelled; twice cuts it off.
    """
    output = Output(is_json=as_json)
    folder = evidence_root(root)
    driven = drive(load_spec(spec), root=folder, is_scratch_kept=is_scratch_kept)
    report = driven.report
    if as_json:
        output.json(report)
    else:
        output.show(render_report(report, title=f"{report.campaign_id}  in {duration(driven.duration_ms)}"))
        output.show(closing(driven, calling=Calling.of(root)), is_wrapped=False)
    output.note(*(f"warning: {each}" for each in driven.warnings))
    output.note(*(error_block(each, Calling.of(root)) for each in driven.refused))
    return report.exit


COMMANDS = {
    "run": Command(
        call=run,
        example="proctor run examples/quickstart.yaml",
        arguments=(
            argument("spec", metavar="SPEC", type=Path, help="The campaign: a YAML file."),
            argument(
                "--keep-scratch",
                dest="is_scratch_kept",
                action="store_true",
                help="Leave workspaces and agent homes where they are.",
            ),
            ROOT,
            JSON,
        ),
    )
}
