"""`proctor campaign lint`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from proctor.errors import Exit, InputError, ProctorError
from proctor.report.words import legible, plural
from proctor.spec.load import LoadedSpec
from proctor.spec.running import SelectSpec
from proctor.surface.cli.blocks import error_block
from proctor.surface.cli.calling import Calling
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.output import Output, describe
from proctor.surface.cli.selecting import SELECT, load_selected
from proctor.surface.lint import Linted, lint


def campaign_lint(*, spec: Path, has_prompts: bool, as_json: bool, select: SelectSpec) -> int:
    """Find all that is wrong with a campaign before anything runs.

    The spec, missions, scripts, templates and prices; programs, logins, hooks, probes and workspaces
    on this machine. Nothing is started.
    """
    output, calling = Output(is_json=as_json), Calling.of(None)
    loaded: LoadedSpec | None = None
    try:
        loaded = load_selected(spec, select)
        found = lint(loaded)
    except InputError as error:
        found = Linted(problems=list(error.each))
    if as_json:
        output.json(_told(loaded, found, calling, has_prompts=has_prompts))
    else:
        output.show(*_blocks(loaded, found, calling, has_prompts=has_prompts), is_wrapped=False)
    return _exit(found.problems)


def _exit(problems: list[ProctorError]) -> int:
    """What its author can mend comes first."""
    codes = {problem.exit for problem in problems}
    return min(codes, default=Exit.OK)


def _told(loaded: LoadedSpec | None, found: Linted, calling: Calling, *, has_prompts: bool) -> dict[str, Any]:
    counts: dict[str, Any] = {"campaign": None, "missions": None, "flows": None, "cells": None}
    if loaded is not None:
        missions, flows = [mission.id for mission in loaded.missions], [flow.id for flow in loaded.spec.flows]
        name, cells = loaded.spec.campaign, loaded.cell_count
        counts = {"campaign": name, "missions": missions, "flows": flows, "cells": cells}
    prompts = {"prompts": [_prompt(*each) for each in _prompts(loaded)]} if has_prompts else {}
    return {
        "ok": not found.problems,
        "problems": [describe(problem, calling) for problem in found.problems],
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
                yield mission.id, flow.id, loaded.prompts.of(mission, flow.id)


def _blocks(
    loaded: LoadedSpec | None, found: Linted, calling: Calling, *, has_prompts: bool
) -> Iterator[RenderableType]:
    for mission, flow, text in _prompts(loaded) if has_prompts else ():
        title = Text(f"{mission} in {flow}", style="bold")
        yield Group(title, Padding(Text(legible(text)), (0, 0, 1, 2)))
    for problem in found.problems:
        yield Group(error_block(problem, calling), Text())
    for warning in found.warnings:
        yield Text(f"warning: {legible(warning)}", style="yellow")
    if found.problems:
        yield Text(f"{plural(len(found.problems), 'problem')}: nothing would run.", style="bold red")
    elif loaded is not None:
        parts = [plural(len(loaded.missions), "mission"), plural(len(loaded.spec.flows), "flow")]
        told = f"{loaded.spec.campaign}: {' × '.join(parts)} × {plural(loaded.spec.repeats, 'repeat')}"
        yield Text(f"{told} = {plural(loaded.cell_count, 'cell')}. All is well.", style="green")


COMMANDS = {
    "campaign lint": Command(
        call=campaign_lint,
        example="proctor campaign lint examples/quickstart.yaml",
        arguments=(
            argument("spec", metavar="SPEC", type=Path, help="The campaign: a YAML file."),
            argument(
                "--prompts", dest="has_prompts", action="store_true", help="Show what is asked, as templates make it."
            ),
            *SELECT,
            JSON,
        ),
    )
}
