"""`proctor suite plan` and `proctor suite run`."""

from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from proctor.campaign.suite import flows_on
from proctor.config.load import load_config
from proctor.plan.expand import name_cells
from proctor.report.words import legible, plural
from proctor.spec.load import LoadedSpec
from proctor.spec.model import FlowSpec, MissionSpec
from proctor.spec.running import SelectSpec
from proctor.surface.cli.command import JSON, PROGRESS, ROOT, Command, argument, evidence_root
from proctor.surface.cli.drive import drive
from proctor.surface.cli.output import Output
from proctor.surface.cli.run import KEEP_SCRATCH, YES, tell
from proctor.surface.cli.selecting import SELECT, load_selected


def plan(*, suite: Path, on: str | None, as_json: bool, select: SelectSpec) -> int:
    """Show what a suite's missions come to: what each asks, expects and is probed by.

    With --on also the cells that `suite run` would try there. Nothing is run.
    """
    output = Output(is_json=as_json)
    loaded = _load(suite, on, select)
    if as_json:
        output.json(_told(loaded))
    else:
        output.show(*_shown(loaded))
    return 0


def run(
    *,
    suite: Path,
    on: str,
    is_agreed: bool,
    root: Path | None,
    as_json: bool,
    is_scratch_kept: bool,
    rows_to: Path | None,
    select: SelectSpec,
) -> int:
    """Run a suite's missions on chosen runtimes, keep the evidence, and judge it.

    SUITE is a spec whose own flows, if it has any, are not used: each runtime of --on is a flow.
    """
    folder = evidence_root(root)
    loaded = _load(suite, on, select)
    driven = drive(loaded, root=folder, is_scratch_kept=is_scratch_kept, is_agreed=is_agreed, rows_to=rows_to)
    return tell(driven, root=root, as_json=as_json, rows_to=rows_to)


def _load(suite: Path, on: str | None, select: SelectSpec) -> LoadedSpec:
    flows: list[FlowSpec] = []
    if on is not None:
        flows = flows_on(on.split(","), config=load_config(suite.absolute().parent))
    return load_selected(suite, select, flows=flows)


def _told(loaded: LoadedSpec) -> dict[str, Any]:
    flows = loaded.spec.flows
    return {
        "suite": loaded.spec.campaign,
        "missions": [_told_of(mission) for mission in loaded.missions],
        "flows": [{"flowId": flow.id, "runtime": flow.runtime, "isolation": flow.isolation} for flow in flows],
        "repeats": loaded.spec.repeats,
        "cells": [id_ for id_, *_ in name_cells(loaded.spec, missions=loaded.missions)],
    }


def _told_of(mission: MissionSpec) -> dict[str, Any]:
    return {
        "missionId": mission.id,
        "prompt": mission.prompt,
        "tags": mission.tags,
        "workspace": mission.workspace.key,
        "probes": len(mission.probes),
        "expect": msgspec.to_builtins(mission.expect),
    }


def _shown(loaded: LoadedSpec) -> list[RenderableType]:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("mission", "tags", "workspace", "probes", "expects"):
        table.add_column(column, overflow="fold")
    for mission in loaded.missions:
        expects = ", ".join(msgspec.to_builtins(mission.expect)) or "nothing"
        workspace = mission.workspace.key or "empty"
        row = (mission.id, ", ".join(mission.tags), workspace, str(len(mission.probes)), expects)
        table.add_row(*(Text(legible(each)) for each in row))
    flows = ", ".join(flow.id for flow in loaded.spec.flows)
    cells = len(loaded.missions) * len(loaded.spec.flows) * loaded.spec.repeats
    told = f"{plural(cells, 'cell')} on {flows}" if flows else "--on says where they would run"
    return [table, Text(), Text(f"{loaded.spec.campaign}: {plural(len(loaded.missions), 'mission')}, {told}")]


SUITE = argument("suite", metavar="SUITE", type=Path, help="The missions: a YAML file like that of a campaign.")
ON = "Runtimes, each a flow: a,b. Where a+b, b is used if a cannot be."

COMMANDS = {
    "suite plan": Command(
        call=plan,
        example="proctor suite plan examples/parity/suite.yaml --on codex_app_server,codex_exec",
        arguments=(SUITE, argument("--on", metavar="RUNTIMES", default=None, help=ON), *SELECT, JSON),
    ),
    "suite run": Command(
        call=run,
        example="proctor suite run examples/parity/suite.yaml --on codex_app_server,codex_exec",
        arguments=(
            SUITE,
            argument("--on", metavar="RUNTIMES", required=True, help=ON),
            *SELECT,
            YES,
            KEEP_SCRATCH,
            PROGRESS,
            ROOT,
            JSON,
        ),
    ),
}
