"""`proctor retry`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

from proctor.errors import InputError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import TrialId
from proctor.report.campaign_state import TrialResult, load_state
from proctor.report.find import root_of
from proctor.report.score import classify, is_infra
from proctor.surface.cli.campaign_run import AGAIN
from proctor.surface.cli.command import Command, argument, evidence_root
from proctor.surface.cli.resume_campaign import can_resume, load_again
from proctor.surface.cli.run import HOW, RunOptions, carry_out
from proctor.surface.cli.select_campaign import find_campaign

_KINDS = ("infra", "unscored")


def retry(*, only: Sequence[str], campaign: str | None, spec: Path | None, **how: Unpack[RunOptions]) -> int:
    """Retry selected trials of a campaign, whether or not they have a result.

    Each gets a new attempt in a new run, whose result becomes the trial's result; earlier attempts are
    kept. `infra` selects trials whose result is about the machine or the provider and not about the
    agent, `unscored` those and all trials without a result.
    """
    folder = evidence_root(how["root"])
    paths = find_campaign(campaign, root=RootPaths(folder), is_fit=can_resume)
    words = [word for each in only for word in each.split(",")]
    chosen = frozenset(choose(paths, words))
    why_idle = f"no trial is {' or '.join(words)}"
    return carry_out(load_again(paths, spec), folder=folder, resume=paths, only=chosen, why_idle=why_idle, **how)


def choose(campaign: CampaignPaths, words: Sequence[str]) -> Iterator[TrialId]:
    """Yield the selected trials. Raises InputError for a word that matches none."""
    trials = load_state(campaign, root=root_of(campaign)).trials
    for word in words:
        found = [each.id for each in trials if each.id is not None and _fits(word, each)]
        if not found and word not in _KINDS:
            what = f"{campaign.folder.name} has no trial, attempt or mission {word!r}"
            raise InputError("evidence.not-found", what)
        yield from found


def _fits(word: str, each: TrialResult) -> bool:
    match word:
        case "infra":
            return _is_infra(each)
        case "unscored":
            return each.result is None or _is_infra(each)
        case _:
            attempts = {row.attempt_id for row in (each.counted_attempt, each.last) if row is not None}
            return word in (each.id, each.mission, *attempts)


def _is_infra(each: TrialResult) -> bool:
    row = each.counted_attempt
    return row is not None and row.state != "running" and is_infra(classify(row))


COMMANDS = {
    "retry": Command(
        call=retry,
        example="proctor retry --only infra quickstart",
        arguments=(
            argument(
                "campaign",
                metavar="CAMPAIGN",
                nargs="?",
                help="Its id, a unique prefix of it, or its name. Default: the latest.",
            ),
            argument(
                "--only",
                metavar="infra|unscored|ID",
                action="append",
                required=True,
                help="Trials to retry: a kind of result, or the id of a trial, attempt or mission; a,b for several.",
            ),
            AGAIN,
            *HOW,
        ),
    ),
}
