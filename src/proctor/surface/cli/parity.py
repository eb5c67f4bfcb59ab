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
from proctor.surface.cli.run import DRY_RUN, YES
from proctor.surface.estimate import estimate
from proctor.surface.parity import compare_flows, suite_of_two


def parity(
    *,
    left: str,
    right: str,
    suite: Path,
    is_dry: bool,
    is_agreed: bool,
    rows_to: Path | None,
    root: Path | None,
    as_json: bool,
) -> int:
    """Run the same missions through two flows or runtimes, and compare what came of it.

    A and B name flows of SUITE, or runtimes: then its first flow is run with each. Compared are how
    attempts ended, what was verified and claimed, the workspaces left, the tools used, and the cost.
    Where it may cost money, somebody must agree.
    """
    output, kept_in = Output(is_json=as_json), evidence_root(root)
    loaded = suite_of_two(suite, left, right)
    if is_dry:
        return show(estimate(loaded, root=RootPaths(kept_in)), as_json=as_json)
    driven = drive(loaded, root=kept_in, is_agreed=is_agreed, rows_to=rows_to)
    found = compare_flows(loaded, driven.report)
    if rows_to == STDOUT:
        pass  # it belongs to the rows
    elif as_json:
        output.json(found)
    else:
        output.show(render_parity(found))
    output.note(*(f"warning: {each}" for each in driven.warnings))
    return found.exit


def render_parity(parity: Parity) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("mission")
    for aspect in Aspect:
        table.add_column(aspect.value)
    for pair in parity.pairs:
        table.add_row(legible(pair.mission_id), *(_mark(each) for each in pair.compared))
    parts: list[RenderableType] = [Text(f"{parity.left} by {parity.right}", style="bold"), table]
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
    why = Text(f"  why: {each.why}", style="yellow") if each.why else Text("  nothing explains it", style="red")
    return [*lines, why]


def _verdict(parity: Parity) -> Text:
    every = [each for pair in parity.pairs for each in pair.compared]
    apart = sum(not each.is_explained for each in every)
    explained = sum(each.is_explained and not each.is_equal for each in every)
    same = len(every) - apart - explained
    told = f"{len(parity.pairs)} missions: {same} aspects the same, {explained} explained, {apart} different"
    return Text(told, style="bold green" if parity.exit == 0 else "bold red")


COMMANDS = {
    "parity": Command(
        call=parity,
        example="proctor parity codex_app_server codex_exec examples/parity/suite.yaml",
        arguments=(
            argument("left", metavar="A", help="A flow of the suite, or a runtime."),
            argument("right", metavar="B", help="Another one."),
            argument("suite", metavar="SUITE", type=Path, help="The missions: a YAML file like that of a campaign."),
            DRY_RUN,
            YES,
            PROGRESS,
            ROOT,
            JSON,
        ),
    )
}
