"""`proctor contract`, `proctor schema` and `proctor completion`."""

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.campaign.examine_programs import with_examiner
from proctor.report.format_values import plural
from proctor.surface.cli.blocks import pairs
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.output import Output
from proctor.surface.completion import SHELLS
from proctor.surface.contract import SCHEMAS, Contract, contract, proven_here, schema


def show_contract(*, as_json: bool) -> int:
    """Print the files, events, commands and codes that other programs may rely on.

    Includes the fields and versions of files, error and exit codes, and the runtimes with their
    declared capabilities. --json prints everything, including the types and what the conformance suite
    has proven of each runtime with its installed program; without it, only an overview is printed.
    """
    output = Output(is_json=as_json)
    if as_json:
        result = with_examiner(lambda examine: contract(proven_by=proven_here(examine)))
        output.json(result, is_indented=True)
    else:
        output.show(_overview(contract()))
    return 0


def show_schema(*, name: str, as_json: bool) -> int:
    """Print the JSON Schema of an evidence file, of a row of a stream, or of a spec.

    NAME is the name of an evidence file, such as seal.json or frames.jsonl, or one of config, spec,
    script, event, self, progress and statement.
    """
    Output(is_json=as_json).json(schema(name), is_indented=True)
    return 0


def show_completion(*, shell: str, as_json: bool) -> int:
    """Print a completion script for a shell.

    For bash, put this line into ~/.bashrc: eval "$(proctor completion bash)"
    """
    output = Output(is_json=as_json)
    script = SHELLS[shell](contract().commands)
    if as_json:
        output.json({"shell": shell, "script": script})
    else:
        output.text(script)
    return 0


def _overview(result: Contract) -> RenderableType:
    sections = (
        ("files, rows and specs", [(each.name, each.means) for each in result.files]),
        ("events", [(each.tag, each.means) for each in result.events]),
        ("commands", [(each.name, each.summary) for each in result.commands]),
        ("exit codes", [(str(each.code), each.means) for each in result.exits]),
        ("error codes", [(each.code, each.means) for each in result.errors]),
        ("runtimes", [(each.id, each.problem or ", ".join(each.transports)) for each in result.runtimes]),
    )
    parts: list[RenderableType] = []
    for title, rows in sections:
        parts += [Text(title, style="bold"), pairs((name, Text(means)) for name, means in rows), Text()]
    return Group(
        *parts, Text(f"{plural(len(result.types), 'type')}; --json prints them and everything else.", style="dim")
    )


COMMANDS = {
    "contract": Command(call=show_contract, example="proctor contract --json", arguments=(JSON,)),
    "schema": Command(
        call=show_schema,
        example="proctor schema seal.json",
        arguments=(
            argument(
                "name",
                metavar="NAME",
                choices=tuple(SCHEMAS),
                help="What to print the schema of; `proctor contract` lists the names.",
            ),
            JSON,
        ),
    ),
    "completion": Command(
        call=show_completion,
        example="proctor completion bash",
        arguments=(
            argument("shell", metavar="SHELL", choices=tuple(SHELLS), help="bash, zsh or fish."),
            JSON,
        ),
    ),
}
