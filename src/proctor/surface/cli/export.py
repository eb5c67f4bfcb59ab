"""`proctor attempt export`."""

import os
from pathlib import Path

from proctor.errors import Exit, InputError
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.disk import replace_file
from proctor.evidence.layout import RootPaths
from proctor.report.codex_export import export_codex_native
from proctor.report.codex_native import read_codex_native
from proctor.report.find import find_attempt
from proctor.report.format_values import legible, plural
from proctor.report.view import view_attempt
from proctor.surface.cli.attempt import REF_HELP
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.output import Output


def export(
    *, ref: str | None, is_codex_native: bool, file: Path | None, check: Path | None, root: Path | None, as_json: bool
) -> int:
    """Export an attempt to a format that other tools read.

    The only format is --codex-native: the `codex_native_*` rows of a Claude-style session log, as
    JSON Lines. With --check, reads such a file instead and lists every line that is not a valid row;
    exits 5 if there is such a line.
    """
    output = Output(is_json=as_json)
    if check is not None:
        return _check(check, output)
    if ref is None or not is_codex_native:
        raise InputError(
            "usage",
            "REF and --codex-native are required without --check",
            suggestion="proctor attempt export REF --codex-native",
        )
    if file is not None and not os.path.isdir(file.parent):  # noqa: PTH112  Path.is_dir raises if access is denied
        raise InputError("usage", f"--output {file}: the folder {file.parent} does not exist")
    paths = find_attempt(ref, root=RootPaths(evidence_root(root)))
    with AttemptFiles(paths) as files:
        data = export_codex_native(view_attempt(files))
    if file is None:
        output.text(data.decode())
        return Exit.OK
    replace_file(file, data, is_durable=False)
    rows = data.count(b"\n")
    if as_json:
        output.json({"attemptId": paths.folder.name, "file": str(file), "rows": rows})
    else:
        output.text(f"{plural(rows, 'row')} written to {legible(str(file))}\n")
    return Exit.OK


def _check(file: Path, output: Output) -> int:
    if not os.path.exists(file):  # noqa: PTH110
        raise InputError("evidence.not-found", f"--check {file}: the file does not exist")
    found = read_codex_native(file)
    if output.is_json:
        output.json({"file": str(file), "rows": len(found.rows), "skipped": found.skipped})
    else:
        for each in found.skipped:
            output.text(f"{legible(str(file))}:{each.line}: {legible(each.reason)}\n")
        skipped = plural(len(found.skipped), "line")
        output.text(f"{plural(len(found.rows), 'row')}, {skipped} skipped\n")
    return Exit.EVIDENCE if found.skipped else Exit.OK


COMMANDS = {
    "attempt export": Command(
        call=export,
        example="proctor attempt export fix.codex.r1.1 --codex-native -o session.jsonl",
        arguments=(
            argument("ref", metavar="REF", nargs="?", help=REF_HELP),
            argument(
                "--codex-native", dest="is_codex_native", action="store_true", help="Export as `codex_native_*` rows."
            ),
            argument("-o", "--output", dest="file", metavar="FILE", type=Path, help="Output file (default: stdout)."),
            argument("--check", metavar="FILE", type=Path, help="Check a file of such rows instead."),
            ROOT,
            JSON,
        ),
    ),
}
