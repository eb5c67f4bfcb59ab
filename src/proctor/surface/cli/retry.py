"""`proctor retry`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

from proctor.errors import InputError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import TrialId
from proctor.report.campaign_state import TrialResult, read_trials
from proctor.report.find import root_of
from proctor.report.score import is_infra, standing
from proctor.surface.cli.campaign_run import AGAIN
from proctor.surface.cli.command import Command, argument, evidence_root
from proctor.surface.cli.resume_campaign import can_resume, load_again
from proctor.surface.cli.run import HOW, RunOptions, carry_out
from proctor.surface.cli.select_campaign import find_campaign

_KINDS = ("infra", "unscored")


def retry(*, only: Sequence[str], campaign: str | None, spec: Path | None, **how: Unpack[RunOptions]) -> int:
    """Try chosen trials of a campaign once more, whether they have a result or not.

    A new attempt of each is made in a run of its own, and what comes of it is the trial's result; the
    attempts before stay as they are. `infra` are trials whose result tells of the machine or the
    provider and not of the agent, `unscored` those and all without a result.
    """
    folder = evidence_root(how["root"])
    paths = find_campaign(campaign, root=RootPaths(folder), is_fit=can_resume)
    words = [word for each in only for word in each.split(",")]
    chosen = frozenset(choose(paths, words))
    why_idle = f"no trial is {' or '.join(words)}"
    return carry_out(load_again(paths, spec), folder=folder, resume=paths, only=chosen, why_idle=why_idle, **how)


def choose(campaign: CampaignPaths, words: Sequence[str]) -> Iterator[TrialId]:
    """The trials that are meant, by the same reading as the report's. InputError for a word that means none."""
    trials = read_trials(campaign, root=root_of(campaign)).trials
    for word in words:
        found = [each.trial.id for each in trials if _fits(word, each)]
        if not found and word not in _KINDS:
            what = f"{campaign.folder.name} has no trial, attempt or mission {word!r}"
            raise InputError("evidence.not-found", what)
        yield from found


def _fits(word: str, each: TrialResult) -> bool:
    match word:
        case "infra":
            return _is_infra(each)
        case "unscored":
            return each.stands is None or _is_infra(each)
        case _:
            tries = {tried.id for tried in (each.spoken, each.last) if tried is not None}
            return word in (each.trial.id, each.trial.mission, *tries)


def _is_infra(each: TrialResult) -> bool:
    return each.spoken is not None and each.spoken.state != "running" and is_infra(standing(each.spoken))


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
                help="Which trials: by what came of them, or a trial, attempt or mission by its id; a,b for several.",
            ),
            AGAIN,
            *HOW,
        ),
    ),
}
