"""`proctor retry`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

from proctor.errors import InputError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import CellId
from proctor.report.place import root_of
from proctor.report.score import is_infra, standing
from proctor.report.standing import CellResult, read_cells
from proctor.surface.cli.campaign_run import AGAIN
from proctor.surface.cli.command import Command, argument, evidence_root
from proctor.surface.cli.meant import find_campaign
from proctor.surface.cli.resuming import can_resume, load_again
from proctor.surface.cli.run import HOW, How, carry_out

_KINDS = ("infra", "unscored")


def retry(*, only: Sequence[str], campaign: str | None, spec: Path | None, **how: Unpack[How]) -> int:
    """Try chosen cells of a campaign once more, whether they have a result or not.

    A new attempt of each is made in a run of its own, and what comes of it is the cell's result; the
    attempts before stay as they are. `infra` are cells whose result tells of the machine or the
    provider and not of the agent, `unscored` those and all without a result.
    """
    folder = evidence_root(how["root"])
    paths = find_campaign(campaign, root=RootPaths(folder), is_fit=can_resume)
    words = [word for each in only for word in each.split(",")]
    chosen = frozenset(choose(paths, words))
    why_idle = f"no cell is {' or '.join(words)}"
    return carry_out(load_again(paths, spec), folder=folder, resume=paths, only=chosen, why_idle=why_idle, **how)


def choose(campaign: CampaignPaths, words: Sequence[str]) -> Iterator[CellId]:
    """The cells that are meant, by the same reading as the report's. InputError for a word that means none."""
    cells = read_cells(campaign, root=root_of(campaign)).cells
    for word in words:
        found = [each.cell.id for each in cells if _fits(word, each)]
        if not found and word not in _KINDS:
            what = f"{campaign.folder.name} has no cell, attempt or mission {word!r}"
            raise InputError("evidence.not-found", what)
        yield from found


def _fits(word: str, each: CellResult) -> bool:
    match word:
        case "infra":
            return _is_infra(each)
        case "unscored":
            return each.stands is None or _is_infra(each)
        case _:
            tries = {tried.id for tried in (each.spoken, each.last) if tried is not None}
            return word in (each.cell.id, each.cell.mission, *tries)


def _is_infra(each: CellResult) -> bool:
    return each.spoken is not None and each.spoken.state != "claimed" and is_infra(standing(each.spoken))


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
            *HOW,
        ),
    ),
}
