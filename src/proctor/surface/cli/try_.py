"""`proctor try`."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.config.load import load_config
from proctor.errors import InputError
from proctor.evidence.layout import RootPaths
from proctor.model.script import Patch
from proctor.report.attempt_columns import verified_word
from proctor.report.format_values import UNKNOWN, count, duration, legible, money, plural, yes_no
from proctor.surface.cli.command import JSON, PROGRESS, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.confirm_cost import show
from proctor.surface.cli.drive import drive
from proctor.surface.cli.init import find_failing_command
from proctor.surface.cli.output import Output
from proctor.surface.cli.row_stream import STDOUT
from proctor.surface.cli.run import DRY_RUN, YES
from proctor.surface.detect import (
    DetectedAgent,
    DetectedFolder,
    find_agents,
    find_test_commands,
    look_at_folder,
    select_agent,
)
from proctor.surface.estimate import estimate
from proctor.surface.init import SCRIPT, render_script
from proctor.surface.try_agents import (
    ADDED,
    DiffSummary,
    TryAgent,
    TryResult,
    build_trial,
    built_in_script,
    side_by_side,
)

_MAX_DIFF_LINES = 30
_ASK = 'Give a probe that fails now and passes when the task is done: `proctor try "…" --probe "COMMAND"`.'


def try_(
    *,
    prompt: str,
    on: str | None,
    probe: str | None,
    has_no_probe: bool,
    is_offline: bool,
    script: Path | None,
    is_dry: bool,
    is_agreed: bool,
    root: Path | None,
    as_json: bool,
    rows_to: Path | None,
) -> int:
    """Give one task to several agents in this folder and compare them.

    Each agent works in a private clone of HEAD or, without git, in a copy of the folder. The probe is
    the test command of the folder, if it fails now; otherwise give one. With --offline, the agents
    are real but their model is the scripted one. A real model needs a login, and its cost must be
    confirmed at the terminal or with --yes. Exit codes are those of `proctor run`.
    """
    output, evidence = Output(is_json=as_json), evidence_root(root)
    folder = Path.cwd()
    is_scripted = is_offline or script is not None
    agents = _select_agents(on, is_scripted=is_scripted)
    detected = look_at_folder(folder)
    if detected.changes:
        changed = plural(detected.changes, "file")
        output.note(f"warning: agents work on HEAD, without your uncommitted changes ({changed})")
    if is_scripted and (named := [each.model for each in agents if each.model is not None]):
        output.note(f"warning: the scripted model is used; {', '.join(named)} is ignored")
    task = _TryTask(script=script)
    if not has_no_probe:
        task = _find_probe(
            folder, detected, probe, prompt=prompt, script=script, is_scripted=is_scripted, output=output
        )
    with _script(prompt, task, is_scripted=is_scripted) as file:
        loaded = build_trial(
            prompt, agents, folder=folder, workspace=detected.workspace, probe=task.command, script=file
        )
        if is_dry:
            return show(estimate(loaded, root=RootPaths(evidence)), as_json=as_json)
        finished = drive(loaded, root=evidence, is_agreed=is_agreed, rows_to=rows_to)
    results, report = side_by_side(finished.report), finished.report
    if rows_to == STDOUT:
        pass  # stdout is reserved for the progress events
    elif as_json:
        result = {"campaignId": report.campaign_id, "exit": report.exit, "isScripted": is_scripted, "tried": results}
        output.json({**result, "probe": task.command})
    else:
        output.show(render_results(results, has_probe=task.command is not None, is_scripted=is_scripted))
        if task.command is not None:
            output.show(Text(f"\nProbe: {legible(task.command)}"), is_wrapped=False)
            output.show(*_not_verified(results, is_built_in=is_scripted and task.is_built_in), is_wrapped=False)
        output.show(_next_steps(results, formatter=CommandFormatter.of(root)), is_wrapped=False)
    output.note(*(f"warning: {each}" for each in finished.warnings))
    return report.exit


@dataclass(frozen=True, slots=True, kw_only=True)
class _TryTask:
    """What judges the agents, and what the scripted model says."""

    command: str | None = None
    """The probe, for a shell that starts at the top of the workspace; None if nothing is verified."""
    script: Path | None = None
    """A script file; None for the fix or, without one, for the built-in script."""
    fix: Patch | None = None
    """A change that makes the probe pass."""

    @property
    def is_built_in(self) -> bool:
        return self.script is None and self.fix is None


def _find_probe(
    folder: Path,
    detected: DetectedFolder,
    probe: str | None,
    *,
    prompt: str,
    script: Path | None,
    is_scripted: bool,
    output: Output,
) -> _TryTask:
    """Run the given probe or the test command once. Raises InputError if it does not fail, or if no script fixes it."""
    tests = find_test_commands(folder)
    is_test = probe is None or probe in tests
    if is_scripted and script is None and is_test and (folder / SCRIPT).is_file():
        script = folder / SCRIPT  # `init` wrote it for the same command
    if script is not None:
        output.note(f"The scripted model replies from {script}.")
    needs_fix = is_scripted and script is None and is_test
    commands = [detected.command(each) for each in ([probe] if probe else tests)]
    find = partial(
        find_failing_command, folder, detected, commands, ask=_ASK, task=prompt, is_offline=needs_fix, output=output
    )
    failing, fix = anyio.run(find)
    if needs_fix and fix is None:
        raise _no_script(failing.command)
    return _TryTask(command=failing.command, script=script, fix=fix)


def _no_script(command: str) -> InputError:
    what = f"none of the simple edits that Proctor tried makes `{command}` pass, so the scripted model has no reply"
    todo = f"Write the fix yourself into {SCRIPT}, which `proctor init --offline` creates; or use --script FILE."
    return InputError("task.no-script", what, suggestion=todo)


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
def _script(prompt: str, task: _TryTask, *, is_scripted: bool) -> Iterator[Path | None]:
    """Yield the path of the script, of a temporary file if it has none; None for a real model."""
    if task.script is not None or not is_scripted:
        yield None if task.script is None else task.script.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="proctor-try-") as folder:
        file = Path(folder) / "script.yaml"
        file.write_text(built_in_script(prompt) if task.fix is None else render_script(task.fix))
        yield file


def render_results(results: Sequence[TryResult], *, has_probe: bool, is_scripted: bool) -> RenderableType:
    """Render the results as a table with one column per agent."""
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", style="dim")
    for each in results:
        table.add_column(legible(each.flow_id))
    rows = {
        **({"model": ["scripted" for _ in results]} if is_scripted else {}),
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
    return Group(Text("\nDiffs:"), *lines, *_diffs(results), Text("\nDetails:"), *commands)


def _diffs(results: Sequence[TryResult]) -> Iterator[Text]:
    """Yield the beginning of each diff, with the names of the agents that made exactly these changes."""
    by_text: dict[str, list[str]] = {}
    for each in results:
        with suppress(OSError):
            if each.diff is not None and (text := Path(each.diff).read_text(errors="replace")):
                by_text.setdefault(text, []).append(legible(each.flow_id))
    for text, names in by_text.items():
        lines = text.splitlines()
        yield Text(f"\n  {_made_by(names)}:", style="dim")
        yield from (Text(f"    {legible(line)}") for line in lines[:_MAX_DIFF_LINES])
        if len(lines) > _MAX_DIFF_LINES:
            yield Text(f"    … and {plural(len(lines) - _MAX_DIFF_LINES, 'more line')}", style="dim")


def _made_by(names: Sequence[str]) -> str:
    """
    >>> _made_by(["codex"]), _made_by(["codex", "claude", "mynah"])
    ('codex made this change', 'codex, claude and mynah made the same change')
    """
    *others, last = names
    return f"{', '.join(others)} and {last} made the same change" if others else f"{last} made this change"


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
            argument(
                "--probe",
                metavar="COMMAND",
                help="Command that must fail before and pass after (default: the test command).",
            ),
            argument(
                "--no-probe", dest="has_no_probe", action="store_true", help="Verify nothing; only compare the changes."
            ),
            argument(
                "--offline",
                dest="is_offline",
                action="store_true",
                help="Use the scripted model instead of a provider.",
            ),
            argument(
                "--script",
                metavar="FILE",
                type=Path,
                help="Script for the scripted model (default: the one that `init` wrote, or a fix that is looked for).",
            ),
            DRY_RUN,
            YES,
            PROGRESS,
            ROOT,
            JSON,
        ),
    )
}
