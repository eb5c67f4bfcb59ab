"""`proctor report` and `proctor validate`."""

from pathlib import Path

from proctor.evidence.layout import RootPaths
from proctor.report.find import RUN_ONE, find_place, latest_campaign, place_of
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.findings import render_examination
from proctor.surface.cli.output import Output
from proctor.surface.cli.print_report import print_report
from proctor.surface.examine import examine_place, load_report


def report(*, path: str | None, is_strict: bool, root: Path | None, as_json: bool) -> int:
    """Recompute a report from the evidence files.

    Derives all results again from the recorded frames, and lists every difference from what was sealed.
    Exits as `proctor run` did, if nothing has changed since.
    """
    output = Output(is_json=as_json)
    paths = RootPaths(evidence_root(root))
    place = latest_campaign(paths) if path is None else find_place(path, root=paths)
    composed = load_report(place, is_strict=is_strict)
    if as_json:
        output.json(composed)
    else:
        print_report(output, composed, title=composed.campaign_id or place.folder.name)
    return composed.exit


def validate(*, path: str | None, is_strict: bool, root: Path | None, as_json: bool) -> int:
    """Check whether evidence is complete and unaltered.

    Exits 0 if all of it is valid, 4 if some is partial because it was cut off, 5 if any is invalid.
    """
    output = Output(is_json=as_json)
    paths = RootPaths(evidence_root(root))
    place = place_of(paths.folder, suggestion=RUN_ONE) if path is None else find_place(path, root=paths)
    examination = examine_place(place, is_strict=is_strict)
    if as_json:
        output.json(examination)
    else:
        output.show(render_examination(examination, calling=CommandFormatter.of(root)))
    return examination.exit


COMMANDS = {
    "report": Command(
        call=report,
        example="proctor report --strict",
        arguments=(
            argument(
                "path",
                metavar="PATH|ID",
                nargs="?",
                help="A campaign's id, a unique prefix of it or its name; a run; an attempt. Default: the latest.",
            ),
            argument(
                "--strict",
                dest="is_strict",
                action="store_true",
                help="Treat every difference from what was sealed as invalid evidence; check the campaign's files.",
            ),
            ROOT,
            JSON,
        ),
    ),
    "validate": Command(
        call=validate,
        example="proctor validate --strict .proctor",
        arguments=(
            argument(
                "path",
                metavar="PATH|ID",
                nargs="?",
                help="A campaign, run, attempt or evidence root. Default: all of --root.",
            ),
            argument(
                "--strict",
                dest="is_strict",
                action="store_true",
                help="Also check schemas, chains, ids and counts, and derive everything again.",
            ),
            ROOT,
            JSON,
        ),
    ),
}
