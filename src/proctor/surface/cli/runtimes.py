"""`proctor runtimes list`, `proctor runtimes conformance` and `proctor runtimes matrix`."""

from pathlib import Path

from proctor.config.load import load_config
from proctor.runtime.rollout import check_config
from proctor.spec.model import Isolation
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.output import Output
from proctor.surface.cli.tables import render_programs
from proctor.surface.programs import find_programs


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


def conformance(
    *, runtime_id: str, transport: str | None, isolation: str | None, case: str | None, root: Path | None, as_json: bool
) -> int:
    """Put a runtime to the conformance suite: the real agent, offline, beside the scripted model.

    Each case passes, fails, is refused (what it shows is not declared, and refused as such when it
    is asked for) or is not applicable (it could not be tried, which is never a pass). What came of
    it is kept in proofs.db, by the digest of the program. Exits 0 when no case failed, 1 when one
    did, 3 when the agent cannot be started.
    """
    # Imported when used: a web server is a heavy thing to start with.
    from proctor.surface.cli.proof_table import render_summary, render_verdict
    from proctor.surface.prove import prove
    from proctor.testing.conformance import Verdict, case_by_id

    output = Output(is_json=as_json)

    def ended(verdict: Verdict) -> None:
        # As it happens; with --json that is no part of the answer.
        (output.note if as_json else output.show)(render_verdict(verdict))

    proven = prove(
        runtime_id,
        root=evidence_root(root),
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


def show_matrix(*, root: Path | None, as_json: bool, as_markdown: bool) -> int:
    """What every runtime claims against what it has shown, on the program there is now.

    A claim is proven when every case of the conformance suite for it passed on the same program;
    what another program had shown is stale.
    """
    from proctor.surface.matrix import matrix, render_markdown

    output = Output(is_json=as_json)
    found = matrix(evidence_root(root))
    if as_json:
        output.json(found)
    elif as_markdown:
        output.text(render_markdown(found))
    else:
        from proctor.surface.cli.matrix import render_matrix

        output.show(render_matrix(found))
    return 0


COMMANDS = {
    "runtimes list": Command(call=list_runtimes, example="proctor runtimes list --json", arguments=(JSON,)),
    "runtimes conformance": Command(
        call=conformance,
        example="proctor runtimes conformance codex_app_server --transport websocket",
        arguments=(
            argument("runtime_id", metavar="ID", help="The runtime."),
            argument("--transport", metavar="NAME", default=None, help="How to talk to it; else its first way."),
            argument(
                "--isolation",
                choices=[each.value for each in Isolation],
                default=None,
                help="One process for all sessions, or one each; else shared where it says that it can.",
            ),
            argument("--case", metavar="NAME", default=None, help="One case; else all."),
            ROOT,
            JSON,
        ),
    ),
    "runtimes matrix": Command(
        call=show_matrix,
        example="proctor runtimes matrix --markdown",
        arguments=(
            argument("--markdown", dest="as_markdown", action="store_true", help="Print a page of Markdown."),
            ROOT,
            JSON,
        ),
    ),
}
