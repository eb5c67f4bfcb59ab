"""`proctor run`."""

from collections.abc import Collection
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec

from proctor.errors import EvidenceError, Exit, InputError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import CampaignId, FlowId, TrialId
from proctor.plan.expand import name_trials
from proctor.report.campaign_state import TrialResult, campaigns_by_age, load_state
from proctor.report.find import RUN_ONE
from proctor.report.format_values import duration
from proctor.report.planned import read_plan
from proctor.spec.campaign_options import Requirement, SelectSpec
from proctor.spec.load import LoadedSpec, SpecOverrides
from proctor.surface.cli.blocks import error_block
from proctor.surface.cli.command import JSON, PROGRESS, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.confirm_cost import show
from proctor.surface.cli.drive import FinishedRun, drive
from proctor.surface.cli.output import Output
from proctor.surface.cli.print_report import print_report
from proctor.surface.cli.resume_campaign import trials_due
from proctor.surface.cli.row_stream import STDOUT
from proctor.surface.cli.run_summary import run_footer
from proctor.surface.cli.select_missions import SELECT, load_with
from proctor.surface.estimate import estimate


class RunOptions(TypedDict):
    """Options of every command that runs trials."""

    is_dry: bool
    is_agreed: bool
    is_scratch_kept: bool
    is_unjudgeable_allowed: bool
    rows_to: Path | None
    root: Path | None
    as_json: bool


def run(
    *,
    spec: Path,
    select: SelectSpec,
    flow_ids: list[FlowId],
    repeats: int | None,
    require: str | None,
    model: str | None,
    is_failed_only: bool,
    is_fail_fast: bool,
    **how: Unpack[RunOptions],
) -> int:
    """Run a campaign, record its evidence, and report the results.

    Runs every mission of SPEC in every flow. Before the first attempt, each probe is run once on the
    untouched workspace: if a goal passes there or a guard fails, the command exits with code 2, and if
    one cannot run, with code 3, unless --allow-unjudgeable is given. Ctrl-C (or SIGTERM, SIGHUP) once
    lets running attempts finish; twice cancels them, and they are still sealed; three times ends them at
    once. `proctor campaign resume` continues later. If the run may cost money, it asks first.
    """
    folder = evidence_root(how["root"])
    overrides = SpecOverrides(
        select=select,
        flow_ids=flow_ids,
        repeats=repeats,
        model=model,
        require=None if require is None else Requirement(require),
    )
    loaded = load_with(spec, overrides)
    if is_failed_only:
        failed, why_idle = select_failed(loaded, root=RootPaths(folder))
        if not failed.trials:
            return _print_idle(failed, why_idle, as_json=how["as_json"], rows_to=how["rows_to"])
        loaded = load_with(spec, failed)
    return carry_out(loaded, folder=folder, is_fail_fast=is_fail_fast, **how)


def select_failed(loaded: LoadedSpec, *, root: RootPaths) -> tuple[SpecOverrides, str]:
    """Return the overrides for only the trials that failed in the latest campaign of this name, and why there are none.

    Raises InputError if there is no such campaign.
    """
    name = loaded.spec.campaign
    last = next((each for each in reversed(campaigns_by_age(root)) if _is_named(each, name)), None)
    if last is None:
        raise InputError("evidence.not-found", f"there is no campaign `{name}` in {root.folder}", suggestion=RUN_ONE)
    state = load_state(last, root=root)
    failed = {each.id for each in state.trials if each.is_settled and has_failed(each)}
    chosen = [(id_, flow.id) for id_, _, flow, _ in name_trials(loaded.spec, missions=loaded.missions) if id_ in failed]
    overrides = msgspec.structs.replace(
        loaded.overrides,
        flow_ids=list(dict.fromkeys(flow for _, flow in chosen)),
        failed_in=CampaignId(last.folder.name),
        trials=[id_ for id_, _ in chosen],
    )
    return overrides, f"no {'selected ' if failed else ''}trial failed in {last.folder.name}"


def _print_idle(failed: SpecOverrides, why: str, *, as_json: bool, rows_to: Path | None) -> int:
    output = Output(is_json=as_json)
    if rows_to == STDOUT:
        pass  # stdout has the progress rows
    elif as_json:
        output.json({"failedIn": failed.failed_in, "trials": []})
    else:
        output.show(f"Nothing to run: {why}", is_wrapped=False)
    return Exit.OK


def _is_named(campaign: CampaignPaths, name: str) -> bool:
    try:
        plan = read_plan(campaign)
    except EvidenceError:
        return False
    return plan.campaign == name and not plan.is_canary


def has_failed(trial: TrialResult) -> bool:
    """Return whether the attempt that counts is not as expected, did not complete, or could not be sealed."""
    row = trial.counted_attempt
    return row is not None and (row.summary is None or row.summary.has_failed)


def carry_out(
    loaded: LoadedSpec,
    *,
    folder: Path,
    resume: CampaignPaths | None = None,
    only: Collection[TrialId] | None = None,
    replace_reason: str | None = None,
    is_canary: bool = False,
    is_fail_fast: bool = False,
    why_idle: str | None = None,
    **how: Unpack[RunOptions],
) -> int:
    """Run a campaign and print its report, or only an estimate with `is_dry`. Return the exit code.

    Evidence goes to `folder`. `why_idle` explains why nothing was run, if that is the case.
    """
    root, as_json, rows_to = how["root"], how["as_json"], how["rows_to"]
    if how["is_dry"]:
        estimated = estimate(loaded, root=RootPaths(folder), only=trials_due(resume, only=only))
        return show(estimated, as_json=as_json, why_idle=why_idle)
    driven = drive(
        loaded,
        root=folder,
        is_agreed=how["is_agreed"],
        is_scratch_kept=how["is_scratch_kept"],
        resume=resume,
        only=only,
        replace_reason=replace_reason,
        is_canary=is_canary,
        is_fail_fast=is_fail_fast,
        is_unjudgeable_allowed=how["is_unjudgeable_allowed"],
        rows_to=rows_to,
    )
    return _print(driven, root=root, as_json=as_json, rows_to=rows_to, why_idle=why_idle)


def _print(driven: FinishedRun, *, root: Path | None, as_json: bool, rows_to: Path | None, why_idle: str | None) -> int:
    """Print the report of a run, and return its exit code."""
    output = Output(is_json=as_json)
    report = driven.report
    if rows_to == STDOUT:
        pass  # stdout has the progress rows
    elif as_json:
        output.json(report)
    else:
        if why_idle is not None and driven.how == "done" and not driven.tried:
            output.text(f"Nothing to run: {why_idle}.\n\n")
        # After a resume with nothing to do, the duration of the command would look like that of the campaign.
        took = f"  in {duration(driven.duration_ms)}" if driven.tried else ""
        title = f"{report.campaign_id}{took}"
        footer = list(run_footer(driven, formatter=CommandFormatter.of(root)))
        print_report(output, report, title=title, footer=footer)
    output.note(*(f"warning: {each}" for each in driven.warnings))
    output.note(*(error_block(each, CommandFormatter.of(root)) for each in driven.refused))
    return report.exit


SPEC = argument("spec", metavar="SPEC", type=Path, help="The spec, a YAML file.")
KEEP_SCRATCH = argument(
    "--keep-scratch",
    dest="is_scratch_kept",
    action="store_true",
    help="Keep workspaces and agent homes.",
)
YES = argument("--yes", dest="is_agreed", action="store_true", help="Do not ask before spending money.")
DRY_RUN = argument(
    "--dry-run",
    dest="is_dry",
    action="store_true",
    help="Run nothing: print the trials, the longest possible time, and the cost if it is known.",
)

ALLOW_UNJUDGEABLE = argument(
    "--allow-unjudgeable",
    dest="is_unjudgeable_allowed",
    action="store_true",
    help="Also run trials whose probes cannot judge them; they end unscored.",
)

HOW = (DRY_RUN, YES, ALLOW_UNJUDGEABLE, KEEP_SCRATCH, PROGRESS, ROOT, JSON)
"""Arguments that fill `RunOptions`."""

EVERYDAY = (
    argument(
        "--flow",
        dest="flow_ids",
        metavar="ID",
        action="extend",
        nargs=1,
        default=[],
        help="Only this flow (repeatable).",
    ),
    argument("--repeats", metavar="N", type=int, help="Repeats in place of those of the spec."),
    argument(
        "--require",
        choices=[each.value for each in Requirement],
        help="How every result must be verified: `verified` by its probes, or `outside` by at least one goal that "
        "Proctor judges itself. Otherwise the command exits 4.",
    ),
    argument("--model", metavar="NAME", help="Name of the model in place of that of each flow."),
    argument(
        "--failed",
        dest="is_failed_only",
        action="store_true",
        help="Only trials that failed in the latest campaign of this name; a new campaign that is not publishable.",
    ),
    argument(
        "--fail-fast", dest="is_fail_fast", action="store_true", help="Start no more attempts after a trial has failed."
    ),
)

COMMANDS = {
    "run": Command(
        call=run,
        example="proctor run examples/quickstart.yaml",
        arguments=(SPEC, *SELECT, *EVERYDAY, *HOW),
    )
}
