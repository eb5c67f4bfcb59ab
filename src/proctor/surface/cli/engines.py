"""`proctor engines list` and `proctor engines check`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.config.load import load_config
from proctor.report.format_values import legible
from proctor.surface.cli.blocks import pairs
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.output import Output
from proctor.surface.engines import EngineCheck, EngineListing, check_engine_by_id, find_engines
from proctor.testing.engines import EngineVerdict, Result

_STYLE = {
    Result.PASSED: "green",
    Result.FAILED: "bold red",
    Result.REFUSED: "dim",
    Result.NOT_APPLICABLE: "yellow",
}


def list_engines(*, as_json: bool) -> int:
    """List the context engines.

    Shows what each engine says about itself, or why it cannot be used. A plugin is listed with its
    package, but loaded only if proctor.toml or the user's config.toml names it.
    """
    output = Output(is_json=as_json)
    engines = find_engines(load_config(Path.cwd()))
    if as_json:
        output.json({"engines": engines})
    else:
        output.show(_render_engines(engines))
    return 0


def check(*, engine_id: str, case: str | None, as_json: bool) -> int:
    """Test a context engine.

    Runs the engine suite, offline and without an agent, in temporary folders. Each case passes, fails
    or is not applicable (it could not be run, which never counts as a pass). A case that fails says
    what was wrong and what the author of the engine should do. Exits 0 if no case failed, 1 if one
    did, 2 if there is no such engine, 3 if the engine cannot be loaded.
    """
    output = Output(is_json=as_json)

    def ended(verdict: EngineVerdict) -> None:
        # Printed as it happens; with --json on stderr, because stdout is for the result.
        (output.note if as_json else output.show)(_render_verdict(verdict))

    checked = check_engine_by_id(engine_id, load_config(Path.cwd()), only=() if case is None else (case,), ended=ended)
    if as_json:
        output.json(checked)
    else:
        output.show(_render_summary(checked))
    return checked.exit


def _render_engines(engines: Sequence[EngineListing]) -> RenderableType:
    parts: list[RenderableType] = []
    for each in engines:
        parts += [Text(legible(each.id), style="bold"), pairs(_facts(each)), Text()]
    return Group(*parts[:-1])


def _facts(each: EngineListing) -> list[tuple[str, RenderableType]]:
    origin = "built in" if each.is_built_in else "plugin"
    named = "" if each.is_built_in else ", named in the config" if each.is_named else ", not named in any config"
    rows: list[tuple[str, RenderableType]] = [
        ("from", Text(legible(f"{', '.join(each.distributions)}: {origin}{named}"))),
    ]
    if each.info is not None:
        rows += [
            ("name", Text(legible(f"{each.info.name} ({each.info.version})"))),
            ("compaction", Text("by the engine" if each.info.owns_compaction else "by the agent")),
            ("maintenance", Text(f"in the {each.info.maintenance}")),
            ("commits", Text(each.info.commits)),
        ]
    if each.problem is not None:
        rows += [
            ("problem", Text(legible(each.problem.what), style="red")),
            ("to do", Text(legible(each.problem.todo))),
            ("code", Text(each.problem.code)),
        ]
    return rows


def _render_verdict(verdict: EngineVerdict) -> RenderableType:
    head = Text.assemble((f"{verdict.result:15}", _STYLE[verdict.result]), f"{verdict.case:21}")
    if verdict.result is Result.FAILED:
        rows = [("expected", verdict.sentence), ("found", verdict.what or ""), ("to do", verdict.todo or "")]
        return Group(head, pairs([(name, Text(legible(text))) for name, text in rows]))
    return head.append(legible(verdict.what or ""), style="dim")


def _render_summary(checked: EngineCheck) -> RenderableType:
    counts = Counter(each.result for each in checked.verdicts)
    parts = [f"{counts[result]} {result}" for result in Result if counts[result]]
    failed = [each.case for each in checked.verdicts if each.result is Result.FAILED]
    line = Text(f"{legible(checked.id)}: ", style="bold").append(", ".join(parts), style=_STYLE[Result.PASSED])
    if failed:
        line = Text(f"{legible(checked.id)}: ", style="bold")
        line.append(f"{', '.join(parts)}: {', '.join(failed)}", style=_STYLE[Result.FAILED])
    return line


COMMANDS = {
    "engines list": Command(call=list_engines, example="proctor engines list --json", arguments=(JSON,)),
    "engines check": Command(
        call=check,
        example="proctor engines check window",
        arguments=(
            argument("engine_id", metavar="ID", help="Id of the engine."),
            argument("--case", metavar="NAME", default=None, help="Run only this case."),
            JSON,
        ),
    ),
}
