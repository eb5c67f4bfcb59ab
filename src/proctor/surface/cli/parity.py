"""`proctor parity`."""

from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.evidence.layout import RootPaths
from proctor.report.format_values import legible
from proctor.report.parity import Aspect, AspectComparison, Parity, differences
from proctor.surface.cli.command import JSON, PROGRESS, ROOT, Command, argument, evidence_root
from proctor.surface.cli.confirm_cost import show
from proctor.surface.cli.drive import drive
from proctor.surface.cli.output import Output
from proctor.surface.cli.row_stream import STDOUT
from proctor.surface.cli.run import ALLOW_UNJUDGEABLE, DRY_RUN, YES
from proctor.surface.estimate import estimate
from proctor.surface.parity import compare_flows, suite_of_two


def parity(
    *,
    left: str,
    right: str,
    suite: Path,
    is_dry: bool,
    is_agreed: bool,
    is_unjudgeable_allowed: bool,
    rows_to: Path | None,
    root: Path | None,
    as_json: bool,
) -> int:
    """Run the same missions in two flows or runtimes and compare them.

    A and B are flows of SUITE, or runtimes; with a runtime, the suite's first flow is run on it.
    Compares outcomes, verdicts, claims, resulting workspaces, tool calls, token usage and metrics. If
    the run may cost money, the cost must be confirmed at the terminal or with --yes. Exits 0 if there
    are no unexplained differences, 1 if there are, 3 if something could not be compared.
    """
    output, folder = Output(is_json=as_json), evidence_root(root)
    loaded = suite_of_two(suite, left, right)
    if is_dry:
        return show(estimate(loaded, root=RootPaths(folder)), as_json=as_json)
    finished = drive(
        loaded,
        root=folder,
        is_agreed=is_agreed,
        is_unjudgeable_allowed=is_unjudgeable_allowed,
        rows_to=rows_to,
    )
    result = compare_flows(loaded, finished.report)
    if rows_to == STDOUT:
        pass  # stdout is reserved for the progress events
    elif as_json:
        output.json(result)
    else:
        output.show(render_parity(result))
    output.note(*(f"warning: {each}" for each in finished.warnings))
    return result.exit


def render_parity(parity: Parity) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("mission")
    for aspect in Aspect:
        table.add_column(aspect.value)
    for pair in parity.pairs:
        table.add_row(legible(pair.mission_id), *(_mark(each) for each in pair.compared))
    parts: list[RenderableType] = [Text(f"{parity.left} vs. {parity.right}", style="bold"), table]
    for pair, each in differences(parity):
        parts += [Text(), Text(f"{pair.mission_id}: {each.aspect}", style="bold"), *_sides(parity, each)]
    parts += [Text(legible(problem), style="red") for problem in parity.problems]
    return Group(*parts, Text(), _verdict(parity))


def _mark(each: AspectComparison) -> Text:
    if each.is_equal:
        return Text("same", style="green")
    return Text("explained", style="yellow") if each.why else Text("DIFFERS", style="bold red")


def _sides(parity: Parity, each: AspectComparison) -> list[Text]:
    sides = [(parity.left, each.left), (parity.right, each.right)]
    lines = [Text(f"  {name}: {legible(msgspec.json.encode(value).decode())}") for name, value in sides]
    why = Text(f"  why: {each.why}", style="yellow") if each.why else Text("  unexplained", style="red")
    return [*lines, why]


def _verdict(parity: Parity) -> Text:
    every = [each for pair in parity.pairs for each in pair.compared]
    apart = sum(not each.is_explained for each in every)
    explained = sum(each.is_explained and not each.is_equal for each in every)
    same = len(every) - apart - explained
    text = f"{len(parity.pairs)} missions: {same} aspects the same, {explained} explained, {apart} different"
    return Text(text, style="bold green" if parity.exit == 0 else "bold red")


COMMANDS = {
    "parity": Command(
        call=parity,
        example="proctor parity codex_app_server codex_exec examples/parity/suite.yaml",
        arguments=(
            argument("left", metavar="A", help="Flow of the suite, or a runtime."),
            argument("right", metavar="B", help="Flow or runtime to compare it with."),
            argument("suite", metavar="SUITE", type=Path, help="Spec with the missions (a YAML file)."),
            DRY_RUN,
            YES,
            ALLOW_UNJUDGEABLE,
            PROGRESS,
            ROOT,
            JSON,
        ),
    )
}
