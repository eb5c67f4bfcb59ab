"""`proctor report` and `proctor validate`."""

from functools import partial
from pathlib import Path

from proctor.evidence.layout import RootPaths
from proctor.report.compose import compose
from proctor.report.find import find_place, latest_campaign, place_of
from proctor.report.text import render_report
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.findings import render_examination
from proctor.surface.cli.output import Output
from proctor.surface.examine import check_row, examine_place, found_at


def report(*, path: str | None, is_strict: bool, root: Path | None, as_json: bool) -> int:
    """Work results out again from their evidence.

    They are compared with what was sealed, and shown. Exits as `proctor run` did, if nothing has
    changed since.
    """
    output = Output(is_json=as_json)
    paths = RootPaths(evidence_root(root))
    place = latest_campaign(paths) if path is None else find_place(path, root=paths)
    composed = compose(found_at(place), check=partial(check_row, is_strict=is_strict))
    if as_json:
        output.json(composed)
    else:
        output.show(render_report(composed, title=composed.campaign_id or place.folder.name))
    return composed.exit


def validate(*, path: str | None, is_strict: bool, root: Path | None, as_json: bool) -> int:
    """Say whether evidence is whole.

    Exits 0 when all of it is valid, 4 when some is partial because it was cut off, 5 when any is
    invalid.
    """
    output = Output(is_json=as_json)
    paths = RootPaths(evidence_root(root))
    place = place_of(paths.folder) if path is None else find_place(path, root=paths)
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
                help="A campaign's id, a beginning of it or its name; a run; an attempt; else the latest campaign.",
            ),
            argument(
                "--strict",
                dest="is_strict",
                action="store_true",
                help="Evidence that does not give what was sealed is invalid.",
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
                help="A campaign, run, attempt or evidence root; by default the whole of --root.",
            ),
            argument(
                "--strict",
                dest="is_strict",
                action="store_true",
                help="Check schemas, chains, ids and counts too, and derive everything again.",
            ),
            ROOT,
            JSON,
        ),
    ),
}
