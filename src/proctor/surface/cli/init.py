"""`proctor init`."""

import os
from pathlib import Path

from rich.text import Text

from proctor.config.load import load_config
from proctor.errors import InputError
from proctor.report.format_values import legible, plural
from proctor.surface.cli.blocks import pairs
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output
from proctor.surface.detect import find_agents, find_test_command, look_at_repository
from proctor.surface.git_exclude import to_do_first
from proctor.surface.init import KEPT_OUT, InitPlan, write_start


def init(*, folder: Path, is_offline: bool, is_forced: bool, as_json: bool) -> int:
    """Inspect a repository and write a first spec for it.

    Looks for installed agents, for logins to their models, and for the test command. Without a
    login, or with --offline, the spec uses the scripted model, which is free and needs no network.
    Exits 2 if the spec exists already (see --force) or no agent is installed.
    """
    output = Output(is_json=as_json)
    if not os.path.isdir(folder):  # noqa: PTH112  Path.is_dir raises if access is denied
        raise InputError("usage", f"the folder {folder} does not exist")
    agents = find_agents(load_config(folder))
    start = InitPlan(
        folder=folder,
        agents=agents,
        repository=look_at_repository(folder),
        test_command=find_test_command(folder),
        is_offline=is_offline or not any(agent.is_ready for agent in agents),
    )
    written = write_start(start, is_forced=is_forced)
    first = to_do_first(folder, KEPT_OUT) if start.repository.why_not is None else None
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
                "testCommand": start.test_command,
                "isRepository": start.repository.why_not is None,
                "uncommittedChanges": start.repository.changes,
                "isOffline": start.is_offline,
                "first": first,
                "next": following,
            }
        )
        return 0
    output.show(pairs((name, Text(legible(value))) for name, value in _rows(start, written)), is_wrapped=False)
    if first is not None:
        output.show(Text(f"\nFirst: {legible(first)}"))
    output.show(Text(f"\nNext: {following}"), is_wrapped=False)
    return 0


def _rows(start: InitPlan, written: tuple[Path, ...]) -> list[tuple[str, str]]:
    agents = [f"{each.name} ({'no login' if each.login is None else each.login})" for each in start.agents]
    why_not, changes = start.repository.why_not, start.repository.changes
    where = "private clones of HEAD" if why_not is None else f"an empty folder: {why_not}"
    if changes:
        where += f", without uncommitted changes ({plural(changes, 'file')})"
    return [
        ("agents", ", ".join(agents)),
        ("model", "scripted: offline and free" if start.is_offline else "real: your provider charges for it"),
        ("tests", start.test_command or "no test command found"),
        ("works in", where),
        ("written", ", ".join(map(str, written))),
    ]


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
                help="Repository (default: the current folder).",
            ),
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
