"""`proctor regrade`."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.campaign.regrade import RegradeResult
from proctor.campaign.regrade import regrade as regrade_attempts
from proctor.config.project import load_project_spec
from proctor.errors import Exit, InputError
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths
from proctor.evidence.reader import read_artifact
from proctor.evidence.regrade_record import GradeRecord, RegradedAttempt, RegradeStatus
from proctor.ledger.reader import read_run_ids
from proctor.report.find import find_place, root_of
from proctor.report.format_values import legible, one_line, plural
from proctor.surface.cli.command import JSON, ROOT, Command, argument, root_or_default
from proctor.surface.cli.output import Output

_WORDS = {True: "verified", False: "not verified", None: "unknown"}


def regrade(*, path: str, spec: Path | None, root: Path | None, as_json: bool) -> int:
    """Judge the work of sealed attempts again, without an agent.

    Rebuilds the tree that each agent left from the untouched workspace and workspace.diff, checks its
    digest, runs the campaign's probes or those of --spec (of the mission with the same id), and writes
    the new decisions into the campaign's folder `regrades`. No existing file changes. Exits 0 if the
    attempts were regraded, whatever the decisions, 2 if a name or the spec is wrong, 3 if a probe cannot
    run on this machine, 4 if an attempt cannot be regraded or none has a probe, 5 if the evidence of an
    attempt is invalid.
    """
    output = Output(is_json=as_json)
    campaign, attempts = _find(path, root=RootPaths(root_or_default(root)))
    new = None if spec is None else load_project_spec(spec)

    def show_progress(done: int, of: int, name: str) -> None:
        output.note(Text(f"{done}/{of} {legible(name)}", style="dim"))

    async def run() -> RegradeResult:
        return await regrade_attempts(campaign, attempts, root=root_of(campaign), new=new, on_progress=show_progress)

    result = anyio.run(run)
    if as_json:
        output.json({"exit": result.exit, "folder": str(result.folder), **msgspec.to_builtins(result.record)})
    else:
        output.show(_render(result), is_wrapped=False)
    return result.exit


def _find(word: str, *, root: RootPaths) -> tuple[CampaignPaths, list[AttemptPaths]]:
    """Return the campaign and the attempts that are meant. Raises InputError if it is neither."""
    place = find_place(word, root=root)
    if isinstance(place, CampaignPaths):
        runs = [root_of(place).run(run_id) for run_id in read_run_ids(place)]
        return place, [attempt for run in runs for attempt in run.attempts()]
    if isinstance(place, AttemptPaths):
        folder = place.folder.absolute()
        campaign = RootPaths(folder.parents[3]).campaign(read_artifact(place.attempt, AttemptRecord).campaign_id)
        if campaign.folder.is_dir():
            return campaign, [AttemptPaths(folder)]
        raise InputError("evidence.not-found", f"the campaign of {word!r} does not exist: {campaign.folder}")
    raise InputError("evidence.not-found", f"{word!r} is not a campaign or an attempt")


def _render(result: RegradeResult) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("attempt", "before", "now", ""):
        table.add_column(name, no_wrap=True)
    for each in result.record.attempts:
        table.add_row(legible(each.attempt_id), _word(each.before), _word(each.after), _note(each))
    return Group(table, Text(), *_reasons(result), *_conclude(result))


def _word(grade: GradeRecord | None) -> str:
    return "" if grade is None else _WORDS[grade.verified]


def _is_changed(each: RegradedAttempt) -> bool:
    return each.before is not None and each.after is not None and each.before.verified != each.after.verified


def _note(each: RegradedAttempt) -> Text:
    if each.status is RegradeStatus.REGRADED:
        return Text("CHANGED", style="bold yellow") if _is_changed(each) else Text("same", style="green")
    style = {RegradeStatus.NO_PROBE: "dim", RegradeStatus.IMPOSSIBLE: "yellow"}.get(each.status, "bold red")
    return Text(each.status.value, style=style)


def _reasons(result: RegradeResult) -> Iterator[RenderableType]:
    for each in result.record.attempts:
        if each.why is not None and each.status is not RegradeStatus.NO_PROBE:
            yield Text(f"{legible(each.attempt_id)}: {legible(one_line(each.why, limit=400))}")
        elif each.after is not None and (_is_changed(each) or each.after.verified is None):
            why = each.after.reasons or ("every probe passes",)
            yield from (Text(f"{legible(each.attempt_id)}: {legible(one_line(reason, limit=400))}") for reason in why)


def _conclude(result: RegradeResult) -> Iterator[Text]:
    attempts = result.record.attempts
    regraded = [each for each in attempts if each.status is RegradeStatus.REGRADED]
    changed = sum(map(_is_changed, regraded))
    text = f"{plural(len(regraded), 'attempt')} of {len(attempts)} regraded, {changed} changed"
    yield Text()
    yield Text(text, style="green" if result.exit == Exit.OK else "yellow")
    yield Text(legible(f"recorded in {result.folder}"), style="dim")


COMMANDS = {
    "regrade": Command(
        call=regrade,
        example="proctor regrade quickstart --spec stricter.yaml",
        arguments=(
            argument("path", metavar="CAMPAIGN|ATTEMPT", help="The campaign or the attempt, by its path, id or name."),
            argument(
                "--spec",
                metavar="FILE",
                type=Path,
                default=None,
                help="Use the probes of this spec's missions, by their id (default: the campaign's).",
            ),
            ROOT,
            JSON,
        ),
    ),
}
