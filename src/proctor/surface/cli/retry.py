"""`proctor retry`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from proctor.errors import Exit, InputError
from proctor.event.outcome import Outcome
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import CellId
from proctor.report import query
from proctor.report.compose import compose
from proctor.report.row import Report, ReportRow
from proctor.report.verdict import judge
from proctor.surface.cli.campaign_run import AGAIN, find_campaign, load_again
from proctor.surface.cli.command import JSON, PROGRESS, ROOT, Command, argument, evidence_root
from proctor.surface.cli.drive import drive
from proctor.surface.cli.run import KEEP_SCRATCH, YES, tell

INFRA, UNSCORED = "infra", "unscored"


def retry(
    *,
    only: Sequence[str],
    campaign: str | None,
    spec: Path | None,
    is_agreed: bool,
    root: Path | None,
    as_json: bool,
    is_scratch_kept: bool,
    rows_to: Path | None,
) -> int:
    """Try chosen cells of a campaign once more, whether they have a result or not.

    A new attempt of each is made in a run of its own, and what comes of it is the cell's result; the
    attempts before stay as they are. `infra` are cells whose result tells of the machine or the
    provider and not of the agent, `unscored` those and all without a result.
    """
    folder = evidence_root(root)
    paths = find_campaign(campaign, root=RootPaths(folder))
    words = [word for each in only for word in each.split(",")]
    chosen = frozenset(_chosen(paths, words, root=RootPaths(folder)))
    driven = drive(
        load_again(paths, spec),
        root=folder,
        is_scratch_kept=is_scratch_kept,
        resume=paths,
        only=chosen,
        is_agreed=is_agreed,
        rows_to=rows_to,
    )
    why_idle = f"no cell is {' or '.join(words)}"
    return tell(driven, root=root, as_json=as_json, rows_to=rows_to, why_idle=why_idle)


def _chosen(campaign: CampaignPaths, words: Sequence[str], *, root: RootPaths) -> Iterator[CellId]:
    report = compose(query.find_campaign(root, campaign))
    results = {row.cell: row for row in report.attempts if not row.is_superseded and row.cell is not None}
    for word in words:
        found = list(_fitting(word, report, results))
        if not found and word not in (INFRA, UNSCORED):
            what = f"{campaign.folder.name} has no cell, attempt or mission {word!r}"
            raise InputError("evidence.not-found", what)
        yield from found


def _fitting(word: str, report: Report, results: dict[CellId, ReportRow]) -> Iterator[CellId]:
    for cell, row in results.items():
        is_named = word in (cell, row.attempt_id, row.mission_id)
        if is_named or (word == INFRA and _is_infra(row)) or (word == UNSCORED and not _is_scored(row)):
            yield cell
    for cell in report.missing_cells:
        if word in (UNSCORED, cell, cell.partition(".")[0]):
            yield cell


def _is_infra(row: ReportRow) -> bool:
    return judge(row) is Exit.INFRASTRUCTURE


def _is_scored(row: ReportRow) -> bool:
    is_told = row.state == "sealed" and row.outcome not in (None, Outcome.UNKNOWN, Outcome.CANCELLED)
    return is_told and not _is_infra(row)


COMMANDS = {
    "retry": Command(
        call=retry,
        example="proctor retry --only infra quickstart",
        arguments=(
            argument(
                "campaign",
                metavar="CAMPAIGN",
                nargs="?",
                help="Its id, a beginning of it or its name; else the latest.",
            ),
            argument(
                "--only",
                metavar="infra|unscored|ID",
                action="append",
                required=True,
                help="Which cells: by what came of them, or a cell, attempt or mission by its id; a,b for several.",
            ),
            AGAIN,
            YES,
            KEEP_SCRATCH,
            PROGRESS,
            ROOT,
            JSON,
        ),
    ),
}
