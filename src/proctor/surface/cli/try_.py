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
from proctor.report.attempt_columns import verified_word
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
    """Give one task to several agents in this repository and compare them.

    Each agent works in a private clone of HEAD. With --offline, the agents are real but their model
    is the scripted one. A real model needs a login, and its cost must be confirmed at the terminal
    or with --yes. Exit codes are those of `proctor run`.
    """
    output, evidence = Output(is_json=as_json), evidence_root(root)
    folder = Path.cwd()
    repository = look_at_repository(folder)
    if repository.why_not is not None:
        todo = "Run it in the top folder of a git repository with a commit (`git init`, `git add`, `git commit`)."
        raise InputError("workspace.not-a-repository", f"{folder}: {repository.why_not}", suggestion=todo)
    is_scripted = is_offline or script is not None
    agents = _select_agents(on, is_scripted=is_scripted)
    if repository.changes:
        changed = plural(repository.changes, "file")
        output.note(f"warning: agents work on HEAD, without your uncommitted changes ({changed})")
    if is_scripted and (named := [each.model for each in agents if each.model is not None]):
        output.note(f"warning: the scripted model is used; {', '.join(named)} is ignored")
    with _script(prompt, script, is_scripted=is_scripted) as file:
        loaded = build_trial(prompt, agents, folder=folder, probe=probe, script=file)
        if is_dry:
            return show(estimate(loaded, root=RootPaths(evidence)), as_json=as_json)
        finished = drive(loaded, root=evidence, is_agreed=is_agreed, rows_to=rows_to)
    results = side_by_side(finished.report)
    if rows_to == STDOUT:
        pass  # stdout is reserved for the progress events
    elif as_json:
        output.json({"campaignId": finished.report.campaign_id, "exit": finished.report.exit, "tried": results})
    else:
        output.show(render_results(results, has_probe=probe is not None))
        if probe is not None:
            output.show(*_not_verified(results, is_built_in=is_scripted and script is None), is_wrapped=False)
        output.show(_next_steps(results, formatter=CommandFormatter.of(root)), is_wrapped=False)
    output.note(*(f"warning: {each}" for each in finished.warnings))
    return finished.report.exit


def _select_agents(on: str | None, *, is_scripted: bool) -> list[TryAgent]:
    """Return the agents named by --on, as NAME or NAME:MODEL; without it, every agent that can be used."""
    config = load_config(Path.cwd())
    agents = find_agents(config)
    if on is None:
        usable = [each for each in agents if is_scripted or each.is_ready]
        chosen = [TryAgent(agent=each, model=None if is_scripted else each.model) for each in usable]
        if not chosen:
            raise InputError(
                "policy.login",
                "no installed agent has a login to a real model",
                suggestion="Log an agent in with its own command, or use --offline for the scripted model.",
            )
        return chosen
    chosen = []
    for word in filter(None, (part.strip() for part in on.split(","))):
        name, _, model = word.partition(":")
        agent = select_agent(name, agents, config)
        chosen.append(TryAgent(agent=agent, model=model or (None if is_scripted else agent.model)))
    named = [each.agent.name for each in chosen]
    if not chosen or len(set(named)) < len(named):
        raise InputError(
            "usage", f"--on {on}: expected names of agents, each once", suggestion="proctor try … --on codex,claude"
        )
    for each in chosen if not is_scripted else ():
        _refuse_without_login(each)
    return chosen


def _refuse_without_login(each: TryAgent) -> None:
    agent: DetectedAgent = each.agent
    if agent.login is None:
        what = f"there is no login for {agent.name} ({agent.runtime_id})"
        todo = "Log it in with its own command, or use --offline for the scripted model."
        raise InputError("policy.login", what, suggestion=todo)
    if each.model is None:
        raise InputError("usage", f"--on {agent.name}: no model is given; write {agent.name}:MODEL")


@contextmanager
def _script(prompt: str, given: Path | None, *, is_scripted: bool) -> Iterator[Path | None]:
    """Yield the path of the script: the given one, or a temporary file with the built-in one; None for a real model."""
    if given is not None or not is_scripted:
        yield None if given is None else given.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="proctor-try-") as folder:
        file = Path(folder) / "script.yaml"
        file.write_text(built_in_script(prompt))
        yield file


def render_results(results: Sequence[TryResult], *, has_probe: bool) -> RenderableType:
    """Render the results as a table with one column per agent."""
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", style="dim")
    for each in results:
        table.add_column(legible(each.flow_id))
    rows = {
        "outcome": [f"{each.outcome or UNKNOWN}{'' if each.code is None else f' ({each.code})'}" for each in results],
        "claims done": [yes_no(each.claimed, none="no claim") for each in results],
        "verified": [_verified(each.verified, has_probe=has_probe) for each in results],
        "changes": [_changed(each.changes) for each in results],
        "tool calls": [count(each.tool_calls) for each in results],
        "tokens": [count(each.tokens) for each in results],
        **({"cost": [money(each.usd) for each in results]} if any(each.usd is not None for each in results) else {}),
        "time": [duration(each.duration_ms) for each in results],
    }
    for name, values in rows.items():
        table.add_row(name, *map(legible, values))
    return table


def _verified(value: bool | None, *, has_probe: bool) -> str:
    return verified_word(value).plain if has_probe else "no probe"


def _changed(changes: DiffSummary | None) -> str:
    if changes is None:
        return UNKNOWN
    return f"{plural(changes.files, 'file')}, +{changes.added} -{changes.removed}" if changes.files else "none"


def _not_verified(results: Sequence[TryResult], *, is_built_in: bool) -> Iterator[RenderableType]:
    """Yield why attempts are not verified, one line per reason."""
    failed = [each for each in results if each.reasons and not each.verified]
    if failed:
        yield Text("\nNot verified:")
    for each in failed:
        yield from (Text(f"  {legible(each.flow_id)}  {legible(reason)}") for reason in each.reasons)
    if failed and is_built_in:
        yield Text(f"  The built-in script only adds {ADDED}; use --script FILE for another one.", style="dim")


def _next_steps(results: Sequence[TryResult], *, formatter: CommandFormatter) -> RenderableType:
    width = max(len(legible(each.flow_id)) for each in results) if results else 0
    lines = [Text(f"  {legible(each.flow_id):{width}}  {legible(each.diff or each.dir)}") for each in results]
    commands = [Text(f"  {formatter.command('attempt', 'explain', each.attempt_id)}", style="dim") for each in results]
    return Group(Text("\nDiffs:"), *lines, Text("\nDetails:"), *commands)


COMMANDS = {
    "try": Command(
        call=try_,
        example='proctor try "Add a test for the parser" --on codex,claude --probe "pytest -q"',
        arguments=(
            argument("prompt", metavar="PROMPT", help="Task for the agents."),
            argument(
                "--on",
                metavar="AGENTS",
                help="Agents, such as `codex,claude` or `codex:MODEL` (default: all that can be used).",
            ),
            argument("--probe", metavar="COMMAND", help="Command that must fail before and pass after."),
            argument(
                "--offline",
                dest="is_offline",
                action="store_true",
                help="Use the scripted model instead of a provider.",
            ),
            argument(
                "--script", metavar="FILE", type=Path, help="Script for the scripted model (default: add a file)."
            ),
            DRY_RUN,
            YES,
            PROGRESS,
            ROOT,
            JSON,
        ),
    )
}
