"""`proctor runtimes list` and `proctor runtimes probe`."""

from pathlib import Path

from proctor.config.load import load_config
from proctor.errors import Exit
from proctor.ids import StrategyId
from proctor.runtime.lane import check_config
from proctor.runtime.registry import runtime_by_id
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.output import Output
from proctor.surface.cli.tables import render_programs
from proctor.surface.programs import find_programs

_WORST = (Exit.INFRASTRUCTURE, Exit.JUDGED_NO, Exit.UNVERIFIED, Exit.OK)


def list_runtimes(*, as_json: bool) -> int:
    """Every runtime: its claims, who may use it, and the program it would run or why there is none.

    A plugin is listed with the package that it comes from, and loaded only where proctor.toml, or
    your own config, names it.
    """
    output = Output(is_json=as_json)
    config = load_config(Path.cwd())
    check_config(config)
    programs = find_programs(config)
    if as_json:
        output.json({"runtimes": programs})
    else:
        output.show(render_programs(programs))
    return 0


def probe(*, strategy: str | None, as_json: bool) -> int:
    """Start the real agent offline and have it show what it is claimed to do.

    A claim is not a proof: each is put to the very program that would run, against the scripted
    model. Exits 0 when all that is claimed was shown, 1 when something was not, 3 when the agent
    cannot be started, 4 when a claim could not be tried.
    """
    # Imported when used: a web server is a heavy thing to start with.
    from proctor.surface.cli.proof_table import render_proofs
    from proctor.surface.prove import prove

    output = Output(is_json=as_json)
    # One without a program of its own has nothing to show until a flow says what it is to run.
    ids = (
        [
            each.id
            for each in find_programs(load_config(Path.cwd()))
            if each.program is not None or each.problem is not None
        ]
        if strategy is None
        else [runtime_by_id(StrategyId(strategy)).id]
    )
    found = tuple(map(prove, ids))
    code = next(code for code in _WORST if code in {Exit.OK, *(each.exit for each in found)})
    if as_json:
        output.json({"exit": code, "runtimes": found})
    else:
        output.show(render_proofs(found))
    return code


COMMANDS = {
    "runtimes list": Command(call=list_runtimes, example="proctor runtimes list --json", arguments=(JSON,)),
    "runtimes probe": Command(
        call=probe,
        example="proctor runtimes probe codex_app_server",
        arguments=(
            argument("strategy", metavar="ID", nargs="?", default=None, help="One runtime; by default all."),
            JSON,
        ),
    ),
}
