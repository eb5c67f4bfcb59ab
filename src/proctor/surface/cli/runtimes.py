"""`proctor runtimes list`."""

from proctor.surface.cli.command import JSON, Command
from proctor.surface.cli.output import Output
from proctor.surface.cli.tables import render_programs
from proctor.surface.programs import find_programs


def list_runtimes(*, as_json: bool) -> int:
    """Every runtime: what it claims to do, and the program it would run or why there is none."""
    output = Output(is_json=as_json)
    programs = find_programs()
    if as_json:
        output.json({"runtimes": programs})
    else:
        output.show(render_programs(programs))
    return 0


COMMANDS = {"runtimes list": Command(call=list_runtimes, example="proctor runtimes list --json", arguments=(JSON,))}
