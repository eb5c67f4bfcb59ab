"""`proctor init`."""

import os
from functools import partial
from pathlib import Path

import anyio
from rich.text import Text

from proctor.config.load import load_config
from proctor.errors import InputError
from proctor.model.script import Patch
from proctor.report.format_values import legible, one_line, plural
from proctor.surface.cli.blocks import pairs
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output
from proctor.surface.detect import (
    KEPT_OUT,
    DetectedAgent,
    DetectedFolder,
    find_agents,
    find_test_commands,
    look_at_folder,
)
from proctor.surface.first_task import FailingCommand, find_failing, missing_module_error, open_untouched
from proctor.surface.git_exclude import to_do_first
from proctor.surface.init import NO_FIX, InitPlan, refuse_existing, write_start
from proctor.surface.one_line_fix import find_fix

_ASK = 'Give a task, and a probe that fails now: `proctor init --task "…" --probe "COMMAND"`.'
_SHOWN_LINES = 12


def init(*, folder: Path, task: str | None, probe: str | None, is_offline: bool, is_forced: bool, as_json: bool) -> int:
    """Inspect a folder and write a first spec for it.

    Runs the test command once, on a private copy. If it fails, the first mission is to make it pass.
    If it passes or was not found, give --task and --probe: a command that fails now and passes when
    the task is done. Without a login to a model, or with --offline, the spec uses the scripted
    model, which is free and needs no network. Exits 2 if the spec exists already (see --force), if
    nothing fails, or if no agent is installed, and 3 if the tests need a module that is not installed.
    """
    output = Output(is_json=as_json)
    if not os.path.isdir(folder):  # noqa: PTH112  Path.is_dir raises if access is denied
        raise InputError("usage", f"the folder {folder} does not exist", suggestion="Pass a folder that exists.")
    if not is_forced:
        refuse_existing(folder, is_offline=False)  # before the agents are looked for, which takes seconds
    agents = installed_agents(folder)
    is_offline = is_offline or not any(agent.is_ready for agent in agents)
    if not is_forced:
        refuse_existing(folder, is_offline=is_offline)
    detected = look_at_folder(folder)
    commands = [detected.command(each) for each in ([probe] if probe else find_test_commands(folder))]
    find = partial(
        find_failing_command, folder, detected, commands, ask=_ASK, task=task, is_offline=is_offline, output=output
    )
    failing, fix = anyio.run(find)
    start = InitPlan(
        folder=folder, agents=agents, detected=detected, failing=failing, task=task, is_offline=is_offline, fix=fix
    )
    written = write_start(start)
    first = _first(start)
    following = CommandFormatter().command("run", str(written[0]))
    if as_json:
        output.json(
            {
                "spec": str(written[0]),
                "files": [str(path) for path in written],
                "agents": [
                    {"name": each.name, "runtime": each.runtime_id, "login": each.login, "isUsed": each in start.used}
                    for each in agents
                ],
                "probe": failing.command,
                "probeResult": failing.row.summary,
                "isRepository": detected.workspace.git is not None,
                "uncommittedChanges": detected.changes,
                "isOffline": is_offline,
                "hasFix": None if not is_offline else fix is not None,
                "first": first,
                "next": following,
            }
        )
        return 0
    output.show(pairs((name, Text(legible(value))) for name, value in _rows(start, written)), is_wrapped=False)
    if first is not None:
        output.show(Text(f"\nFirst: {legible(first)}"))
    output.show(Text(f"\n{'Next' if first is None else 'Then'}: {following}"), is_wrapped=False)
    return 0


def installed_agents(folder: Path) -> tuple[DetectedAgent, ...]:
    """Return the installed agents. Raises InputError if no agent is installed."""
    agents = find_agents(load_config(folder))
    if not agents:
        todo = "Install one; `proctor doctor` lists what it looks for."
        raise InputError("machine.binary-missing", "no agent is installed", suggestion=todo)
    return agents


async def find_failing_command(
    folder: Path,
    detected: DetectedFolder,
    commands: list[str],
    *,
    ask: str,
    task: str | None,
    is_offline: bool,
    output: Output,
) -> tuple[FailingCommand, Patch | None]:
    """Return the first of `commands` that fails on a private copy of the folder and, offline, a change that fixes it.

    Raises InputError, with `ask` as the advice, if none fails. Raises MachineError if the tests need a module that is
    not installed.
    """
    async with open_untouched(folder, detected) as untouched:
        if commands:
            output.note(f"Running `{legible(commands[0])}` once, on a private copy of the folder …")
        failing = await find_failing(untouched, commands, changes=detected.changes, fix=ask)
        if (error := missing_module_error(untouched, failing, folder=folder, task=task)) is not None:
            output.note("It fails. The end of its output:", *_last_lines(failing.output), "")
            raise error
        if not is_offline:
            return failing, None
        output.note("It fails. Trying simple edits of one line, for the scripted model …")
        return failing, await find_fix(untouched, failing)


def _last_lines(text: str) -> list[str]:
    return [f"  {legible(line)}" for line in text.splitlines()[-_SHOWN_LINES:]]


def _first(start: InitPlan) -> str | None:
    """Return what the user must do before the spec can be run with success, or None."""
    steps = []
    if start.detected.workspace.git is not None and (todo := to_do_first(start.folder, KEPT_OUT)) is not None:
        steps.append(todo)
    if start.is_offline and start.fix is None:
        steps.append(f"{NO_FIX} Write the fix yourself into {start.files[-1]}: replace its steps as its comment shows.")
    return "\n".join(steps) or None


def _rows(start: InitPlan, written: tuple[Path, ...]) -> list[tuple[str, str]]:
    agents = [f"{each.name} ({'no login' if each.login is None else each.login})" for each in start.agents]
    detected = start.detected
    where = "private copies of the folder" if detected.workspace.git is None else "private clones of HEAD"
    if detected.below:
        where += f", in {detected.below}"
    if detected.changes:
        where += f", without uncommitted changes ({plural(detected.changes, 'file')})"
    rows = [
        ("agents", ", ".join(agents)),
        ("model", "scripted: offline and free" if start.is_offline else "real: your provider charges for it"),
        ("task", "make the failing tests pass" if start.task is None else one_line(start.task)),
        ("probe", f"{start.failing.command}   ({start.failing.row.summary} now)"),
        ("works in", where),
    ]
    if start.fix is not None:
        old, new = (one_line((text or "").splitlines()[-1]) for text in (start.fix.old, start.fix.new))
        rows.append(("script", f"changes {start.fix.file}: `{old}` becomes `{new}`"))
    return [*rows, ("written", ", ".join(map(str, written)))]


COMMANDS = {
    "init": Command(
        call=init,
        example="proctor init --offline",
        arguments=(
            argument(
                "folder",
                metavar="DIR",
                nargs="?",
                type=Path,
                default=Path(),
                help="Folder, usually a repository (default: the current folder).",
            ),
            argument("--task", metavar="TEXT", help="Task for the agents (default: make the failing tests pass)."),
            argument("--probe", metavar="COMMAND", help="Command that fails now (default: the test command)."),
            argument(
                "--offline",
                dest="is_offline",
                action="store_true",
                help="Use the scripted model instead of a provider.",
            ),
            argument("--force", dest="is_forced", action="store_true", help="Overwrite an existing spec."),
            JSON,
        ),
    )
}
