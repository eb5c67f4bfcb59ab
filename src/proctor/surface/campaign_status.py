"""How a campaign stands, in a few numbers that its ledger adds up: trials, attempts, outcomes, and what is left."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.live import Live
from proctor.evidence.reader import read_artifact
from proctor.ids import CampaignId, RunId, RuntimeId
from proctor.ledger.reader import read_outcomes
from proctor.ledger.schema import LedgerAttempt, LedgerRun
from proctor.report.campaign import effort_of, exit_of
from proctor.report.campaign_state import TrialResult, count_alike, read_trials
from proctor.report.format_values import USED_UP
from proctor.report.gates import gates_of
from proctor.report.score import is_infra
from proctor.report.verdict import WORDS


class RemainingTrials(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Trials that are not settled: never tried, at work, cut off, or to be tried again."""

    untried: int
    running: int
    cut_off: int
    again: int

    @property
    def total(self) -> int:
        return self.untried + self.running + self.cut_off + self.again


class CampaignStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A campaign in numbers. `outcomes` and `codes` are of each trial's last attempt; `met` and `notMet` are results as
    the spec expects, and otherwise. Unknown is null.

    `infra` are settled trials whose result tells of the machine, the provider or the run, and not of the agent. `usd`
    is what is known of all attempts, `usdUnknown` how many of them do not tell. `perMinute` is how many attempts ended
    a minute in the last run; `live` is there while one runs. `file` is where its spec lies, and null where it was built
    on the spot.
    """

    campaign_id: CampaignId
    kind: Literal["campaign", "canary"]
    dir: str
    file: str | None
    is_live: bool
    is_pinned: bool
    runs: int
    run_id: RunId | None
    began_at_ms: int | None
    ended_at_ms: int | None
    ended: str | None
    trials: int
    settled: int
    left: RemainingTrials
    attempts: dict[str, int]
    outcomes: dict[str, int]
    codes: dict[str, int]
    met: int
    not_met: int
    infra: int
    verdict: str
    usd: float | None
    usd_unknown: int
    per_minute: float | None
    live: Live | None = None

    @property
    def can_resume(self) -> bool:
        """Whether `campaign resume` would do something."""
        is_kept = self.kind == "campaign" and self.file is not None
        return bool(is_kept and self.left.total and not self.is_live and self.ended not in USED_UP)


def status_of(campaign: CampaignPaths) -> CampaignStatus:
    """By the same reading as the report's. EvidenceError where ledger or plan cannot be read."""
    try:
        found = read_trials(campaign, root=RootPaths(campaign.folder.parent.parent))
    except EvidenceError as error:
        raise EvidenceError(error.code, error.what, file=f"{campaign.folder.name}/{error.file}") from error
    contents, runs = found.contents, found.contents.runs
    run = runs[-1] if runs else None
    kinds, effort = count_alike(found.trials), effort_of(found)
    places = _counted((_place(each, live=found.is_running), number) for each, number in kinds)
    last = [(each.spoken, number) for each, number in kinds if each.spoken is not None]
    results = [(each.spoken, number) for each, number in kinds if each.spoken is not None and each.stands is not None]
    return CampaignStatus(
        campaign_id=found.campaign_id,
        kind="canary" if found.plan.is_canary else "campaign",
        dir=str(campaign.folder),
        file=None if contents.campaign is None else contents.campaign.file or None,
        is_live=found.is_running,
        is_pinned=os.path.lexists(campaign.pin),
        runs=len(runs),
        run_id=None if run is None else run.id,
        began_at_ms=runs[0].began_at_ms if runs else None,
        ended_at_ms=None if run is None else run.ended_at_ms,
        ended=None if run is None else run.how,
        trials=len(found.trials),
        settled=places.get("settled", 0),
        left=RemainingTrials(
            untried=places.get("untried", 0),
            running=places.get("running", 0),
            cut_off=places.get("cut off", 0),
            again=places.get("again", 0),
        ),
        attempts=dict(Counter(each.state for attempts in contents.attempts_of.values() for each in attempts)),
        outcomes=_counted((each.outcome, number) for each, number in last if each.state == "sealed"),
        codes=_counted((each.code, number) for each, number in last),
        met=sum(number for each, number in results if each.is_expected is True),
        not_met=sum(number for each, number in results if each.is_expected is False),
        infra=sum(number for each, number in kinds if each.is_settled and each.stands and is_infra(each.stands)),
        verdict="running" if found.is_running else WORDS[exit_of(found, gates_of(found))],
        usd=effort.usd,
        usd_unknown=effort.usd_unknown,
        per_minute=_per_minute(run, found.attempts),
        live=_picture(campaign) if found.is_running else None,
    )


def progress_line(standing: CampaignStatus) -> str:
    """How far it is."""
    left = standing.left
    told = (
        (left.running, "running"),
        (left.again, "to be tried again"),
        (left.cut_off, "cut off"),
        (left.untried, "not tried yet"),
    )
    parts = [f"{standing.settled:,} of {standing.trials:,} settled"]
    return ", ".join([*parts, *(f"{number:,} {word}" for number, word in told if number)])


def _place(trial: TrialResult, *, live: bool) -> str:
    if trial.is_settled:
        return "settled"
    if trial.last is None:
        return "untried"
    if trial.last.state == "running":
        return "running" if live else "cut off"
    return "again"


def _counted(names: Iterable[tuple[str | None, int]]) -> dict[str, int]:
    """So many of each, added up; the most frequent first."""
    counts: Counter[str] = Counter()
    for name, number in names:
        if name is not None:
            counts[str(name)] += number
    return dict(counts.most_common())


def _per_minute(run: LedgerRun | None, attempts: Sequence[LedgerAttempt]) -> float | None:
    ended = [] if run is None else [each.ended_at_ms for each in attempts if each.run == run.id and each.ended_at_ms]
    if run is None or not ended or max(ended) <= run.began_at_ms:
        return None
    return round(len(ended) * 60_000 / (max(ended) - run.began_at_ms), 2)


def _picture(campaign: CampaignPaths) -> Live | None:
    """What is at work now, as the one that runs it tells; None where it has not told yet."""
    with suppress(EvidenceError):
        return read_artifact(campaign.live, Live)
    return None


def count_outcomes(root: RootPaths) -> dict[RuntimeId, dict[str, int]]:
    """How the sealed attempts of every campaign ended, by runtime; the most frequent first. What cannot be read is
    left out.
    """
    counts: dict[RuntimeId, Counter[str]] = {}
    for campaign in root.campaigns():
        with suppress(EvidenceError):
            for each in read_outcomes(campaign):
                name = str(each.outcome) if each.code is None else f"{each.outcome} ({each.code})"
                counts.setdefault(each.runtime_id, Counter())[name] += each.number
    return {runtime_id: dict(each.most_common()) for runtime_id, each in counts.items()}
