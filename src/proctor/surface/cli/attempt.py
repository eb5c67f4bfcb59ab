"""`proctor attempt`: list, show, explain, rederive."""

from pathlib import Path

from proctor.errors import Exit
from proctor.evidence.layout import AttemptPaths, RootPaths
from proctor.report.campaign_state import list_attempts as list_rows
from proctor.report.find import find_attempt, first_command
from proctor.report.format_values import legible
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output

# What renders or derives is imported where it is used: a listing as JSON needs none of it.


def list_attempts(*, root: Path | None, as_json: bool) -> int:
    """List every attempt under the evidence root, the latest last."""
    output = Output(is_json=as_json)
    folder = evidence_root(root)
    found = list_rows(RootPaths(folder))
    if as_json:
        output.json({"attempts": found.rows, **({"findings": found.findings} if found.findings else {})})
    elif not found.rows and not found.findings:
        first = first_command()
        output.text(f"No attempts in {legible(str(folder))}.\n")
        if first is not None:
            output.text(f"To make some: {CommandFormatter.of(root).spell(first)}\n")
    else:
        from proctor.report.text import render_attempts

        output.show(render_attempts(found.rows, found.findings))
    return 0


def show(*, ref: str, root: Path | None, as_json: bool) -> int:
    """Show every file of an attempt except the frames."""
    from proctor.evidence.attempt_files import AttemptFiles
    from proctor.report.show import artifacts, render_artifacts
    from proctor.report.view import view_attempt

    output = Output(is_json=as_json)
    with AttemptFiles(_found(ref, root)) as files:
        view = view_attempt(files)
    if as_json:
        output.json(artifacts(view))
    else:
        output.show(render_artifacts(view), is_wrapped=False)
    return 0


def explain(*, ref: str, root: Path | None, as_json: bool) -> int:
    """Explain an attempt: what was asked, done, claimed and verified, and what to do next."""
    from proctor.report.explanation_text import render_commands, render_explanation
    from proctor.surface.explain import explain_attempt

    output = Output(is_json=as_json)
    explanation = explain_attempt(_found(ref, root), spell=CommandFormatter.of(root).spell)
    if as_json:
        output.json(explanation)
    else:
        output.show(render_explanation(explanation))
        if (commands := render_commands(explanation)) is not None:
            output.show(commands, is_wrapped=False)
    return Exit.EVIDENCE if explanation.evidence == "invalid" else Exit.OK


def rederive(*, ref: str, is_dry: bool, root: Path | None, as_json: bool) -> int:
    """Rebuild tool.calls.jsonl and transcript.jsonl of an attempt from its frames.

    An absent file is restored if the result is what was sealed. An existing file is only compared.
    Exits 5 if a file differs.
    """
    from proctor.surface.cli.rederive_text import render_rederived
    from proctor.surface.rederive import rederive_files

    output = Output(is_json=as_json)
    done = rederive_files(_found(ref, root), is_dry=is_dry)
    if as_json:
        output.json(done)
    else:
        output.show(render_rederived(done))
    return done.exit


def _found(ref: str, root: Path | None) -> AttemptPaths:
    return find_attempt(ref, root=RootPaths(evidence_root(root)))


REF_HELP = (
    "The attempt: its folder, RUN/ATTEMPT, its id, or a unique prefix. A trial id selects the trial's result. "
    "If several runs have the id, the latest is used."
)
_REF = argument("ref", metavar="REF", help=REF_HELP)

COMMANDS = {
    "attempt list": Command(call=list_attempts, example="proctor attempt list --json", arguments=(ROOT, JSON)),
    "attempt show": Command(
        call=show, example="proctor attempt show fix.codex.r1.1 --json", arguments=(_REF, ROOT, JSON)
    ),
    "attempt explain": Command(
        call=explain, example="proctor attempt explain claim.codex.r1.1", arguments=(_REF, ROOT, JSON)
    ),
    "attempt rederive": Command(
        call=rederive,
        example="proctor attempt rederive fix.codex.r1.1 --check",
        arguments=(
            _REF,
            argument("--check", dest="is_dry", action="store_true", help="Write nothing."),
            ROOT,
            JSON,
        ),
    ),
}
