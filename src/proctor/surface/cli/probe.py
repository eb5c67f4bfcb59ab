"""`proctor probe check`."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.campaign.probe_check import (
    CheckedTree,
    MissionCheck,
    ProbeCheckResult,
    ProbeVerdicts,
    TreeCheck,
    check_probes,
)
from proctor.config.project import load_project_spec
from proctor.errors import Exit, InputError
from proctor.probe.model import Verdict
from proctor.report.format_values import legible, one_line, plural
from proctor.spec.collect_errors import raise_collected
from proctor.spec.expect import ExpectedVerdict
from proctor.spec.load import LoadedSpec, find_specs
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.output import Output

_MAX_RUNS = 100
_TAIL_LINES = 5
_VERDICTS = {
    ExpectedVerdict.YES: "verified",
    ExpectedVerdict.NO: "not verified",
    ExpectedVerdict.UNKNOWN: "not verified (unknown)",
}


def probe_check(*, paths: Sequence[Path], runs: int, as_json: bool) -> int:
    """Test the probes of missions without an agent.

    Runs the probes of each mission on the untouched workspace, which they must not verify, with the
    mission's `solution` applied, which they must verify, and with each of its `cheats`, which they must
    not. They run several times, and a probe whose verdict varies is reported. Records nothing. Exits 0
    if everything is as required, 1 if not, 2 if a spec is wrong or a patch does not apply, 3 if a probe
    cannot run on this machine, 4 if no mission has a probe.
    """
    output = Output(is_json=as_json)
    specs = _load(paths)

    def show_progress(done: int, of: int, name: str) -> None:
        output.note(Text(f"{done}/{of} {legible(name)}", style="dim"))

    async def check() -> ProbeCheckResult:
        return await check_probes(specs, runs=runs, on_progress=show_progress)

    result = anyio.run(check)
    if as_json:
        output.json(result)
    else:
        output.show(render_check(result), is_wrapped=False)
    return result.exit


def _load(paths: Sequence[Path]) -> list[LoadedSpec]:
    """Load the specs, and those in each folder. Raises InputError with the errors of all of them."""
    files: list[Path] = []
    for path in paths:
        found = find_specs(path) if path.is_dir() else [path]
        if not found:
            raise InputError("spec.missing-file", f"the folder {path} contains no spec: no *.yaml has `campaign:`")
        files += found
    specs: list[LoadedSpec] = []
    errors: list[InputError] = []
    for file in dict.fromkeys(files):
        try:
            specs.append(load_project_spec(file))
        except InputError as error:
            errors += error.all_errors
    if errors:
        raise_collected(errors)
    return specs


# ── text ──


def render_check(result: ProbeCheckResult) -> RenderableType:
    """Render the result as one table per spec, then why each wrong row is wrong, then flaky probes."""
    parts: list[RenderableType] = []
    for spec in result.specs:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("mission", "tree", "verdict", "as required"):
            table.add_column(name, no_wrap=True)
        for mission in spec.missions:
            _add_rows(table, mission)
        parts += [Text(legible(spec.file), style="bold"), table, Text()]
        for mission in spec.missions:
            parts += _explain(mission, runs=result.runs)
    return Group(*parts, _conclude(result))


def _add_rows(table: Table, mission: MissionCheck) -> None:
    name = legible(mission.mission_id)
    if not mission.trees:
        table.add_row(name, "", Text("no probe", style="dim"), Text("not checked", style="dim"))
    for at, tree in enumerate(mission.trees):
        table.add_row("" if at else name, _name(tree), _VERDICTS[tree.verified], _mark(tree))


def _name(tree: TreeCheck) -> str:
    return legible(tree.tree.value if tree.patch is None else f"{tree.tree} {tree.patch}")


def _mark(tree: TreeCheck) -> Text:
    if tree.is_unjudged:
        return Text("CANNOT RUN", style="bold red")
    return Text("yes", style="green") if tree.is_as_required else Text("NO", style="bold red")


def _explain(mission: MissionCheck, *, runs: int) -> Iterator[RenderableType]:
    for tree in mission.trees:
        if not tree.is_as_required or tree.is_unjudged:
            yield Text(f"{legible(mission.mission_id)}, {_name(tree)}: {_requirement(tree)}", style="bold")
            yield from (Text(f"  {legible(one_line(reason, limit=400))}") for reason in tree.reasons)
            yield from _tails(tree)
            yield Text()
    flaky = [(tree, each) for tree in mission.trees for each in tree.probes if each.varied]
    for tree, each in flaky:
        verdicts = ", ".join(verdict.value for verdict in each.verdicts)
        where = f"{_name(tree)}{', its mutant' if each.is_mutant else ''}"
        text = f"flaky: {mission.mission_id}, {each.criterion}, on {where}: {each.varied} of {runs} runs differ"
        yield Text(f"{legible(text)} ({verdicts})", style="yellow")
    if flaky:
        yield Text()
    if mission.trees and not mission.has_solution:
        text = f"{mission.mission_id} has no `solution`, so nothing shows that its probes can verify anything"
        yield Text(legible(text), style="yellow")
        yield Text()


def _requirement(tree: TreeCheck) -> str:
    if tree.is_unjudged:
        return "a probe cannot run"
    if tree.tree is CheckedTree.SOLUTION:
        return "the solution must be verified, and is not"
    if tree.verified is ExpectedVerdict.YES:
        return f"the {tree.tree} must not be verified, and is"
    return "a probe cannot tell work from no work"


def _tails(tree: TreeCheck) -> Iterator[Text]:
    """Yield the end of the output of each probe that did not pass, or of all if they should not have passed."""
    for each in tree.probes:
        if tree.verified is ExpectedVerdict.YES or set(each.verdicts) != {Verdict.PASS}:
            yield from _tail(each)


def _tail(probe: ProbeVerdicts) -> Iterator[Text]:
    for name, tail in (("stdout", probe.stdout_tail), ("stderr", probe.stderr_tail)):
        lines = tail.strip().splitlines()[-_TAIL_LINES:]
        yield from (Text(f"    {name} | {legible(line)}", style="dim") for line in lines)


def _conclude(result: ProbeCheckResult) -> Text:
    trees = [tree for spec in result.specs for mission in spec.missions for tree in mission.trees]
    wrong = sum(not tree.is_as_required or tree.is_unjudged for tree in trees)
    missions = sum(bool(mission.trees) for spec in result.specs for mission in spec.missions)
    what = f"{plural(missions, 'mission')}, {plural(len(trees), 'tree')}, {plural(result.runs, 'run')} each"
    if not trees:
        return Text("Nothing was checked: no mission has a probe", style="yellow")
    if result.exit == Exit.OK:
        return Text(f"{what}: all as required", style="green")
    return Text(f"{what}: {wrong} of {len(trees)} not as required", style="bold red")


def _runs(word: str) -> int:
    """Parse the number of runs."""
    if not word.isdecimal() or not 1 <= int(word) <= _MAX_RUNS:
        raise argparse.ArgumentTypeError(f"the number is between 1 and {_MAX_RUNS}")
    return int(word)


COMMANDS = {
    "probe check": Command(
        call=probe_check,
        example="proctor probe check examples/probes",
        arguments=(
            argument(
                "paths",
                metavar="SPEC",
                type=Path,
                nargs="+",
                help="A spec, or a folder: every spec directly in it.",
            ),
            argument(
                "--runs",
                metavar="N",
                type=_runs,
                default=2,
                help="How often the probes run on each tree (default 2).",
            ),
            JSON,
        ),
    ),
}
