"""`proctor runtimes list`, `proctor runtimes conformance`, `proctor runtimes matrix` and `proctor runtimes new`."""

from pathlib import Path

from rich.text import Text

from proctor import places
from proctor.campaign.examine_programs import with_examiner
from proctor.config.load import load_config
from proctor.ids import runtime_id_of
from proctor.report.format_values import legible
from proctor.runtime.rollout import check_config
from proctor.spec.choices import Isolation
from proctor.surface.cli.blocks import pairs
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.output import Output
from proctor.surface.cli.tables import render_programs
from proctor.surface.programs import find_programs


def list_runtimes(*, as_json: bool) -> int:
    """List the runtimes and the agent programs they would run.

    Shows each runtime's declared capabilities, its rollout state, and its program with its version, or
    why the program cannot be used. A plugin is listed with its package, but loaded only if proctor.toml or the user's
    config.toml names it.
    """
    output = Output(is_json=as_json)
    config = load_config(Path.cwd())
    check_config(config)
    programs = with_examiner(lambda examine: find_programs(config, examine=examine))
    if as_json:
        output.json({"runtimes": programs})
    else:
        output.show(render_programs(programs))
    return 0


def conformance(
    *, runtime_id: str, transport: str | None, isolation: str | None, case: str | None, as_json: bool
) -> int:
    """Test a runtime's declared capabilities with the real agent.

    Runs the conformance suite offline, with the scripted model. Each case passes, fails, is refused
    (it needs a capability that is not declared, and the runtime refused to use it) or is not
    applicable (it could not be run, which never counts as a pass). The results are stored in
    proofs.db of your state folder, by the digest of the agent program. Exits 0 if no case failed, 1
    if one did, 3 if the agent cannot be started.
    """
    # Imported when used: the suite imports a web server, which is slow.
    from proctor.surface.cli.proof_table import render_summary, render_verdict
    from proctor.surface.prove import prove
    from proctor.testing.conformance import CaseVerdict, case_by_id

    output = Output(is_json=as_json)

    def ended(verdict: CaseVerdict) -> None:
        # Printed as it happens; with --json on stderr, because stdout is for the result.
        (output.note if as_json else output.show)(render_verdict(verdict))

    proven = prove(
        runtime_id,
        folder=places.state_dir(),
        transport=transport,
        isolation=isolation,
        only=None if case is None else [case_by_id(case)],
        ended=ended,
    )
    if as_json:
        output.json(proven)
    else:
        output.show(render_summary(proven))
    return proven.exit


def show_matrix(*, as_json: bool, as_markdown: bool) -> int:
    """Show declared and proven capabilities of all runtimes.

    A declared capability is proven if every case of the conformance suite for it has passed with the
    program that is installed now. It is stale if they passed with another program or version of
    Proctor.
    """
    from proctor.surface.matrix import matrix, render_markdown

    output = Output(is_json=as_json)
    result = with_examiner(lambda examine: matrix(places.state_dir(), examine=examine))
    if as_json:
        output.json(result)
    elif as_markdown:
        output.text(render_markdown(result))
    else:
        from proctor.surface.cli.matrix import render_matrix

        output.show(render_matrix(result))
    return 0


def new_runtime(*, name: str, folder: Path, as_json: bool) -> int:
    """Write the package of a new runtime.

    Creates the folder proctor-NAME: a runtime, a dialect for the scripted model, a stand-in agent,
    and a test that runs the conformance suite and passes as written. Prints the commands that
    install the package and run its test. Exits 2 if the name is not valid or is taken, or if the
    folder exists.
    """
    from proctor.surface.new_runtime import write_runtime

    output = Output(is_json=as_json)
    written = write_runtime(name, parent=folder)
    if as_json:
        output.json(written)
        return 0
    output.show(pairs([("runtime", Text(written.id)), ("written", Text(legible(written.folder)))]), is_wrapped=False)
    for path in written.files:
        output.show(Text(f"  {path}"), is_wrapped=False)
    output.show(Text("\nNext:"))
    for command in written.next:
        output.show(Text(f"  {legible(command)}"), is_wrapped=False)
    return 0


COMMANDS = {
    "runtimes list": Command(call=list_runtimes, example="proctor runtimes list --json", arguments=(JSON,)),
    "runtimes conformance": Command(
        call=conformance,
        example="proctor runtimes conformance codex_app_server --transport websocket",
        arguments=(
            argument(
                "runtime_id", metavar="ID", type=runtime_id_of, help="Id of the runtime, or the name of its agent."
            ),
            argument("--transport", metavar="NAME", default=None, help="Transport (default: the runtime's first)."),
            argument(
                "--isolation",
                choices=[each.value for each in Isolation],
                default=None,
                help="One process for all sessions, or one per session (default: shared if the runtime supports it).",
            ),
            argument("--case", metavar="NAME", default=None, help="Run only this case."),
            JSON,
        ),
    ),
    "runtimes new": Command(
        call=new_runtime,
        example="proctor runtimes new mynah",
        arguments=(
            argument("name", metavar="NAME", help="Id of the new runtime, such as mynah."),
            argument(
                "--folder",
                metavar="DIR",
                type=Path,
                default=Path(),
                help="Where to create the package's folder (default: the current folder).",
            ),
            JSON,
        ),
    ),
    "runtimes matrix": Command(
        call=show_matrix,
        example="proctor runtimes matrix --markdown",
        arguments=(
            argument("--markdown", dest="as_markdown", action="store_true", help="Print Markdown."),
            JSON,
        ),
    ),
}
