"""`proctor contract`, `proctor schema` and `proctor completion`."""

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.report.format_values import plural
from proctor.surface.cli.blocks import pairs
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.output import Output, spell
from proctor.surface.completion import SHELLS
from proctor.surface.contract import SCHEMAS, Contract, contract, schema


def show_contract(*, as_json: bool) -> int:
    """Everything that others may rely on.

    Files with their fields and versions, events, commands, error and exit codes, runtimes and what
    they claim to do. --json tells all of it; else only what there is.
    """
    output = Output(is_json=as_json)
    told = contract()
    if as_json:
        output.json(told)
    else:
        output.show(_overview(told))
    return 0


def show_schema(*, name: str, as_json: bool) -> int:
    """Print the JSON Schema of a file of the evidence, of a row of a stream, or of a spec.

    NAME is the file's own, such as seal.json or frames.jsonl; or spec, script, event, self,
    progress, statement.
    """
    Output(is_json=as_json).json(schema(name))
    return 0


def show_completion(*, shell: str, as_json: bool) -> int:
    """Print a script that completes Proctor's commands in a shell.

    For bash: eval "$(proctor completion bash)" in ~/.bashrc.
    """
    output = Output(is_json=as_json)
    script = SHELLS[shell](contract().commands)
    output.text(spell({"shell": shell, "script": script}) if as_json else script)
    return 0


def _overview(told: Contract) -> RenderableType:
    sections = (
        ("files, rows and specs", [(each.name, each.means) for each in told.files]),
        ("events", [(each.tag, each.means) for each in told.events]),
        ("commands", [(each.name, each.summary) for each in told.commands]),
        ("exit codes", [(str(each.code), each.means) for each in told.exits]),
        ("error codes", [(each.code, each.means) for each in told.errors]),
        ("runtimes", [(each.id, each.problem or ", ".join(each.transports)) for each in told.runtimes]),
    )
    parts: list[RenderableType] = []
    for title, rows in sections:
        parts += [Text(title, style="bold"), pairs((name, Text(means)) for name, means in rows), Text()]
    return Group(*parts, Text(f"{plural(len(told.types), 'type')}; --json gives them and all the rest.", style="dim"))


COMMANDS = {
    "contract": Command(call=show_contract, example="proctor contract --json", arguments=(JSON,)),
    "schema": Command(
        call=show_schema,
        example="proctor schema seal.json",
        arguments=(
            argument("name", metavar="NAME", choices=tuple(SCHEMAS), help="`proctor contract` lists them."),
            JSON,
        ),
    ),
    "completion": Command(
        call=show_completion,
        example="proctor completion bash",
        arguments=(
            argument("shell", metavar="SHELL", choices=tuple(SHELLS), help="One of bash, zsh and fish."),
            JSON,
        ),
    ),
}
