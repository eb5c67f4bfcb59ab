"""`proctor try`."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.config.load import load_config
from proctor.errors import InputError
from proctor.evidence.layout import RootPaths
from proctor.report.format_values import UNKNOWN, count, duration, legible, money, plural, yes_no
from proctor.surface.cli.command import JSON, PROGRESS, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.confirm_cost import show
from proctor.surface.cli.drive import drive
from proctor.surface.cli.output import Output
from proctor.surface.cli.row_stream import STDOUT
from proctor.surface.cli.run import DRY_RUN, YES
from proctor.surface.detect import DetectedAgent, find_agents, look_at_repository, select_agent
from proctor.surface.estimate import estimate
from proctor.surface.try_agents import (
    ADDED,
    DiffSummary,
    TryAgent,
    TryResult,
    build_trial,
    built_in_script,
    side_by_side,
)


def try_(
    *,
    prompt: str,
    on: str | None,
    probe: str | None,
    is_offline: bool,
    script: Path | None,
    is_dry: bool,
    is_agreed: bool,
    root: Path | None,
    as_json: bool,
    rows_to: Path | None,
) -> int:
    """Give one task to several agents, each in a private clone of this repository, and compare.

    With --offline the model is a scripted one: the agents are real, their answers are not. A real
    model needs a login to it, and somebody who agrees to what it may cost.
    """
    output, kept_in = Output(is_json=as_json), evidence_root(root)
    folder = Path.cwd()
    repository = look_at_repository(folder)
    if repository.why_not is not None:
        todo = "Run it at the top of a repository: `git init`, `git add`, `git commit` make one."
        raise InputError("workspace.not-a-repository", f"{folder}: {repository.why_not}", suggestion=todo)
    is_scripted = is_offline or script is not None
    contestants = _contestants(on, is_scripted=is_scripted)
    if repository.changes:
        lacking = plural(repository.changes, "file")
        output.note(f"warning: agents work on HEAD, without what is not committed: {lacking}")
    if is_scripted and (named := [each.model for each in contestants if each.model is not None]):
        output.note(f"warning: the model is a scripted one, and {', '.join(named)} is not asked")
    with _script(prompt, script, is_scripted=is_scripted) as file:
        loaded = build_trial(prompt, contestants, folder=folder, probe=probe, script=file)
        if is_dry:
            return show(estimate(loaded, root=RootPaths(kept_in)), as_json=as_json)
        driven = drive(loaded, root=kept_in, is_agreed=is_agreed, rows_to=rows_to)
    tried = side_by_side(driven.report)
    if rows_to == STDOUT:
        pass  # it belongs to the rows
    elif as_json:
        output.json({"campaignId": driven.report.campaign_id, "exit": driven.report.exit, "tried": tried})
    else:
        output.show(render_tried(tried, has_probe=probe is not None))
        if probe is not None:
            output.show(*_not_verified(tried, is_built_in=is_scripted and script is None), is_wrapped=False)
        output.show(_places(tried, calling=CommandFormatter.of(root)), is_wrapped=False)
    output.note(*(f"warning: {each}" for each in driven.warnings))
    return driven.report.exit


def _contestants(on: str | None, *, is_scripted: bool) -> list[TryAgent]:
    """Those that are named, as NAME or NAME:MODEL; else every agent that can."""
    config = load_config(Path.cwd())
    agents = find_agents(config)
    if on is None:
        there = [each for each in agents if is_scripted or each.is_ready]
        chosen = [TryAgent(agent=each, model=None if is_scripted else each.model) for each in there]
        if not chosen:
            raise InputError(
                "policy.login",
                "no agent here has a login to a real model",
                suggestion="Take --offline, where the model is a scripted one.",
            )
        return chosen
    chosen = []
    for word in filter(None, (part.strip() for part in on.split(","))):
        name, _, model = word.partition(":")
        agent = select_agent(name, agents, config)
        chosen.append(TryAgent(agent=agent, model=model or (None if is_scripted else agent.model)))
    named = [each.agent.name for each in chosen]
    if not chosen or len(set(named)) < len(named):
        raise InputError("usage", "--on takes names of agents, each once", suggestion="proctor try … --on codex,claude")
    for each in chosen if not is_scripted else ():
        _refuse_without_login(each)
    return chosen


def _refuse_without_login(each: TryAgent) -> None:
    agent: DetectedAgent = each.agent
    if agent.login is None:
        what = f"there is no login for {agent.name} ({agent.runtime_id})"
        raise InputError("policy.login", what, suggestion="Or take --offline, where the model is a scripted one.")
    if each.model is None:
        raise InputError("usage", f"which model? Write --on {agent.name}:MODEL")


@contextmanager
def _script(prompt: str, given: Path | None, *, is_scripted: bool) -> Iterator[Path | None]:
    """The one that is given, or the built-in one for as long as it is needed."""
    if given is not None or not is_scripted:
        yield None if given is None else given.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="proctor-try-") as folder:
        file = Path(folder) / "script.yaml"
        file.write_text(built_in_script(prompt))
        yield file


def render_tried(tried: Sequence[TryResult], *, has_probe: bool) -> RenderableType:
    """A column an agent, a line a fact."""
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", style="dim")
    for each in tried:
        table.add_column(legible(each.flow_id))
    rows = {
        "outcome": [f"{each.outcome or UNKNOWN}{'' if each.code is None else f' ({each.code})'}" for each in tried],
        "says it is done": [yes_no(each.claimed, none="says nothing") for each in tried],
        "verified": [yes_no(each.verified, none=UNKNOWN if has_probe else "no probe") for each in tried],
        "changes": [_changed(each.changes) for each in tried],
        "tool calls": [count(each.tool_calls) for each in tried],
        "tokens": [count(each.tokens) for each in tried],
        **({"cost": [money(each.usd) for each in tried]} if any(each.usd is not None for each in tried) else {}),
        "time": [duration(each.duration_ms) for each in tried],
    }
    for name, values in rows.items():
        table.add_row(name, *map(legible, values))
    return table


def _changed(changes: DiffSummary | None) -> str:
    if changes is None:
        return UNKNOWN
    return f"{plural(changes.files, 'file')}, +{changes.added} -{changes.removed}" if changes.files else "none"


def _not_verified(tried: Sequence[TryResult], *, is_built_in: bool) -> Iterator[RenderableType]:
    """Why, a line each."""
    failed = [each for each in tried if each.reasons and not each.verified]
    if failed:
        yield Text("\nNot verified:")
    for each in failed:
        yield from (Text(f"  {legible(each.flow_id)}  {legible(reason)}") for reason in each.reasons)
    if failed and is_built_in:
        yield Text(f"  The scripted model can add {ADDED} alone; --script FILE says what it does instead.", style="dim")


def _places(tried: Sequence[TryResult], *, calling: CommandFormatter) -> RenderableType:
    width = max(len(legible(each.flow_id)) for each in tried) if tried else 0
    lines = [Text(f"  {legible(each.flow_id):{width}}  {legible(each.diff or each.dir)}") for each in tried]
    told = [Text(f"  {calling.command('attempt', 'explain', each.attempt_id)}", style="dim") for each in tried]
    return Group(Text("\nThe diffs:"), *lines, Text("\nMore:"), *told)


COMMANDS = {
    "try": Command(
        call=try_,
        example='proctor try "Add a test for the parser" --on codex,claude --probe "pytest -q"',
        arguments=(
            argument("prompt", metavar="PROMPT", help="The task."),
            argument(
                "--on",
                metavar="AGENTS",
                help="Which, as codex,claude or codex:MODEL; else all that are here and can.",
            ),
            argument("--probe", metavar="COMMAND", help="What must fail before, and pass after."),
            argument("--offline", dest="is_offline", action="store_true", help="Use the scripted model."),
            argument("--script", metavar="FILE", type=Path, help="What it says; else it looks around and adds a file."),
            DRY_RUN,
            YES,
            PROGRESS,
            ROOT,
            JSON,
        ),
    )
}
