"""`proctor retry`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

from proctor.campaign.open import require_reason
from proctor.errors import InputError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.summary import SCORED, UNKNOWN
from proctor.ids import TrialId
from proctor.report.campaign_state import TrialResult, load_state
from proctor.report.classify import classify, is_infra
from proctor.report.find import root_of
from proctor.surface.cli.campaign_run import AGAIN
from proctor.surface.cli.command import Command, argument, evidence_root
from proctor.surface.cli.resume_campaign import can_resume, load_again
from proctor.surface.cli.run import HOW, RunOptions, carry_out
from proctor.surface.cli.select_campaign import find_campaign

_KINDS = {"infra": "no trial failed for infrastructure reasons", "unscored": "no unscored trial can be retried"}
"""The kinds of results that can be selected, and why nothing runs if no trial matches."""

_ONLY = "`--only` takes infra, unscored or an id."
_FAILED = " To run failed trials again: `proctor run SPEC --failed`."


def retry(
    *,
    only: Sequence[str],
    campaign: str | None,
    spec: Path | None,
    is_replacing: bool,
    reason: str | None,
    **how: Unpack[RunOptions],
) -> int:
    """Retry selected trials of a campaign that have no scored result.

    Each gets a new attempt in a new run; earlier attempts are kept. `infra` selects trials whose result is
    about the machine or the provider and not about the agent; `unscored` selects those, trials without a
    result, and trials whose probes could not judge the result. The first scored attempt of a trial
    counts, so a trial that has one is retried only with --replace and --reason: then the first scored
    attempt of the new run counts, every report shows the first results too, and the campaign can no
    longer be published.
    """
    if is_replacing != (reason is not None and reason.strip() != ""):
        raise InputError("usage", "--replace and --reason TEXT must be given together")
    folder = evidence_root(how["root"])
    paths = find_campaign(campaign, root=RootPaths(folder), is_fit=can_resume)
    words = [word for each in only for word in each.split(",")]
    chosen = frozenset(choose(paths, words, is_replacing=is_replacing))
    why_idle = " and ".join(_KINDS[word] for word in words if word in _KINDS)
    return carry_out(
        load_again(paths, spec),
        folder=folder,
        resume=paths,
        only=chosen,
        replace_reason=reason,
        why_idle=why_idle,
        **how,
    )


def choose(campaign: CampaignPaths, words: Sequence[str], *, is_replacing: bool = False) -> Iterator[TrialId]:
    """Yield the selected trials.

    Raises InputError for a word that matches none, and for a scored result that is not to be replaced.
    """
    trials = load_state(campaign, root=root_of(campaign)).trials
    for word in words:
        found = [each for each in trials if each.id is not None and _fits(word, each)]
        if not found and word not in _KINDS:
            what = f"{campaign.folder.name} has no trial, attempt or mission {word!r}"
            raise InputError("evidence.not-found", what, suggestion=_ONLY + (_FAILED if word == "failed" else ""))
        if not is_replacing:
            require_reason([each.id for each in found if each.id is not None and each.result in SCORED], None)
        yield from (each.id for each in found if each.id is not None)


def _fits(word: str, each: TrialResult) -> bool:
    match word:
        case "infra":
            return _is_infra(each)
        case "unscored":
            return each.result is None or _is_infra(each) or _is_unjudged(each)
        case _:
            attempts = {row.attempt_id for row in (each.counted_attempt, each.last) if row is not None}
            return word in (each.id, each.mission, *attempts)


def _is_infra(each: TrialResult) -> bool:
    row = each.counted_attempt
    return row is not None and row.state != "running" and is_infra(classify(row))


def _is_unjudged(each: TrialResult) -> bool:
    """Whether it has probes, and they could not judge it. Without probes, another attempt would not be judged."""
    row = each.counted_attempt
    return each.result == UNKNOWN and row is not None and row.summary is not None and row.summary.is_unjudged


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
            argument(
                "--replace",
                dest="is_replacing",
                action="store_true",
                help="Also retry trials with a scored result. Reports show it, and it blocks publishing.",
            ),
            argument("--reason", metavar="TEXT", help="Why results are replaced; recorded and shown in reports."),
            AGAIN,
            *HOW,
        ),
    ),
}
