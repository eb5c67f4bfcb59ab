"""`proctor campaign lint`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from proctor.campaign.examine_programs import with_examiner
from proctor.errors import Exit, InputError, ProctorError
from proctor.event.claim import with_footer
from proctor.report.format_values import legible, plural
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.load import LoadedSpec
from proctor.surface.cli.blocks import error_block
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output, describe
from proctor.surface.cli.select_missions import SELECT, load_selected
from proctor.surface.lint import LintResult, lint


def campaign_lint(*, spec: Path, has_prompts: bool, as_json: bool, select: SelectSpec) -> int:
    """Check a spec for errors without running it.

    Checks the spec, missions, scripts, templates and prices, and on this machine the agent programs,
    logins, hooks, probes and workspaces. Reports all errors at once. Agent programs are run for their
    version and protocol only; no hook or probe is started. Exits 0 if the campaign can run, 2 if the
    spec has errors, 3 if this machine cannot run it.
    """
    output, formatter = Output(is_json=as_json), CommandFormatter.of(None)
    loaded: LoadedSpec | None = None
    try:
        selected = loaded = load_selected(spec, select)
        found = with_examiner(lambda examine: lint(selected, examine=examine))
    except InputError as error:
        found = LintResult(findings=list(error.all_errors))
    if as_json:
        output.json(_to_json(loaded, found, formatter, has_prompts=has_prompts))
    else:
        output.show(*_blocks(loaded, found, formatter, has_prompts=has_prompts), is_wrapped=False)
    return _exit(found.findings)


def _exit(findings: list[ProctorError]) -> int:
    """Return the exit code: errors in the spec, which its author can fix, take precedence over the machine's."""
    codes = {finding.exit for finding in findings}
    return min(codes, default=Exit.OK)


def _to_json(
    loaded: LoadedSpec | None, found: LintResult, formatter: CommandFormatter, *, has_prompts: bool
) -> dict[str, Any]:
    counts: dict[str, Any] = {"campaign": None, "missions": None, "flows": None, "trials": None}
    if loaded is not None:
        missions, flows = [mission.id for mission in loaded.missions], [flow.id for flow in loaded.spec.flows]
        name, trials = loaded.spec.campaign, loaded.trial_count
        counts = {"campaign": name, "missions": missions, "flows": flows, "trials": trials}
    prompts = {"prompts": [_prompt(*each) for each in _prompts(loaded)]} if has_prompts else {}
    return {
        "ok": not found.findings,
        "findings": [describe(finding, formatter) for finding in found.findings],
        "warnings": found.warnings,
        **counts,
        **prompts,
    }


def _prompt(mission: str, flow: str, text: str) -> dict[str, str]:
    return {"missionId": mission, "flowId": flow, "prompt": text}


def _prompts(loaded: LoadedSpec | None) -> Iterator[tuple[str, str, str]]:
    if loaded is not None:
        for mission in loaded.missions:
            for flow in loaded.spec.flows:
                yield mission.id, flow.id, with_footer(loaded.prompts.of(mission, flow.id))


def _blocks(
    loaded: LoadedSpec | None, found: LintResult, formatter: CommandFormatter, *, has_prompts: bool
) -> Iterator[RenderableType]:
    for mission, flow, text in _prompts(loaded) if has_prompts else ():
        title = Text(f"{mission} in {flow}", style="bold")
        yield Group(title, Padding(Text(legible(text)), (0, 0, 1, 2)))
    for finding in found.findings:
        yield Group(error_block(finding, formatter), Text())
    for warning in found.warnings:
        yield Text(f"warning: {legible(warning)}", style="yellow")
    if found.findings:
        yield Text(f"{plural(len(found.findings), 'finding')}: the campaign cannot run", style="bold red")
    elif loaded is not None:
        parts = [plural(len(loaded.missions), "mission"), plural(len(loaded.spec.flows), "flow")]
        text = f"{loaded.spec.campaign}: {' × '.join(parts)} × {plural(loaded.spec.repeats, 'repeat')}"
        yield Text(f"{text} = {plural(loaded.trial_count, 'trial')}; no errors found", style="green")


COMMANDS = {
    "campaign lint": Command(
        call=campaign_lint,
        example="proctor campaign lint examples/quickstart.yaml",
        arguments=(
            argument("spec", metavar="SPEC", type=Path, help="The spec, a YAML file."),
            argument(
                "--prompts",
                dest="has_prompts",
                action="store_true",
                help="Also print each prompt as it will be sent.",
            ),
            *SELECT,
            JSON,
        ),
    )
}
