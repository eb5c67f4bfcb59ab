"""`proctor suite plan` and `proctor suite run`."""

from pathlib import Path
from typing import Any, Unpack

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from proctor.campaign.suite import flows_on
from proctor.config.load import load_config
from proctor.evidence.layout import RootPaths
from proctor.plan.expand import name_trials
from proctor.report.format_values import legible, plural
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.load import LoadedSpec
from proctor.spec.model import FlowSpec, MissionSpec
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.confirm_cost import summary
from proctor.surface.cli.output import Output
from proctor.surface.cli.run import HOW, RunOptions, carry_out
from proctor.surface.cli.select_missions import SELECT, load_selected
from proctor.surface.estimate import Estimate, estimate


def plan(*, suite: Path, on: str | None, root: Path | None, as_json: bool, select: SelectSpec) -> int:
    """Show a suite's missions and the trials they expand to.

    Lists the tags, workspace, probes and expectations of each mission; --json adds the prompts. With
    --on, also lists the trials that `suite run` would run, with their estimated time and cost.
    Nothing is run.
    """
    output = Output(is_json=as_json)
    loaded = _load(suite, on, select)
    estimated = estimate(loaded, root=RootPaths(evidence_root(root))) if loaded.spec.flows else None
    if as_json:
        output.json(_to_json(loaded, estimated))
    else:
        output.show(*_render(loaded), *(() if estimated is None else map(Text, summary(estimated))))
    return 0


def run(*, suite: Path, on: str, select: SelectSpec, **options: Unpack[RunOptions]) -> int:
    """Run a suite's missions on selected runtimes.

    SUITE is a spec. Its flows, if it has any, are ignored: each runtime of --on becomes a flow. Exit
    codes are those of `proctor run`.
    """
    folder = evidence_root(options["root"])
    return carry_out(_load(suite, on, select), folder=folder, **options)


def _load(suite: Path, on: str | None, select: SelectSpec) -> LoadedSpec:
    flows: list[FlowSpec] = []
    if on is not None:
        flows = flows_on(on.split(","), config=load_config(suite.absolute().parent))
    return load_selected(suite, select, flows=flows)


def _to_json(loaded: LoadedSpec, estimated: Estimate | None) -> dict[str, Any]:
    flows = loaded.spec.flows
    return {
        "suite": loaded.spec.campaign,
        "missions": [_mission_to_json(mission) for mission in loaded.missions],
        "flows": [{"flowId": flow.id, "runtime": flow.runtime, "isolation": flow.isolation} for flow in flows],
        "repeats": loaded.spec.repeats,
        "trials": [id_ for id_, *_ in name_trials(loaded.spec, missions=loaded.missions)],
        "attemptsAtMost": None if estimated is None else estimated.attempts_at_most,
        "longestMs": None if estimated is None else estimated.longest_ms,
        "usd": None if estimated is None else estimated.usd,
    }


def _mission_to_json(mission: MissionSpec) -> dict[str, Any]:
    return {
        "missionId": mission.id,
        "prompt": mission.prompt,
        "tags": mission.tags,
        "workspace": mission.workspace.key,
        "probes": len(mission.probes),
        "expect": msgspec.to_builtins(mission.expect),
    }


def _render(loaded: LoadedSpec) -> list[RenderableType]:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("mission", "tags", "workspace", "probes", "expects"):
        table.add_column(column, overflow="fold")
    for mission in loaded.missions:
        expects = ", ".join(msgspec.to_builtins(mission.expect)) or "nothing"
        workspace = mission.workspace.key or "empty"
        row = (mission.id, ", ".join(mission.tags), workspace, str(len(mission.probes)), expects)
        table.add_row(*(Text(legible(each)) for each in row))
    flows = ", ".join(flow.id for flow in loaded.spec.flows)
    trials = f"{plural(loaded.trial_count, 'trial')} on {flows}" if flows else "no runtime selected (see --on)"
    return [table, Text(), Text(f"{loaded.spec.campaign}: {plural(len(loaded.missions), 'mission')}, {trials}")]


SUITE = argument("suite", metavar="SUITE", type=Path, help="Spec with the missions (a YAML file).")
ON = "Runtimes, one flow each: `a,b`. In `a+b`, b is the fallback for a."

COMMANDS = {
    "suite plan": Command(
        call=plan,
        example="proctor suite plan examples/parity/suite.yaml --on codex_app_server,codex_exec",
        arguments=(SUITE, argument("--on", metavar="RUNTIMES", default=None, help=ON), *SELECT, ROOT, JSON),
    ),
    "suite run": Command(
        call=run,
        example="proctor suite run examples/parity/suite.yaml --on codex_app_server,codex_exec",
        arguments=(
            SUITE,
            argument("--on", metavar="RUNTIMES", required=True, help=ON),
            *SELECT,
            *HOW,
        ),
    ),
}
