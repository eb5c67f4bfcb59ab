"""The status of a campaign in a few numbers: trials, attempts, outcomes, and what is left."""

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
from proctor.report.campaign_state import TrialResult, load_state
from proctor.report.classify import OF_THE_AGENT, is_infra
from proctor.report.format_values import USED_UP
from proctor.report.gates import gates_of
from proctor.report.verdict import exit_of, verdict_of


class RemainingTrials(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Trials without a final result."""

    untried: int
    """Trials that were never tried."""
    running: int
    """Trials whose attempt is running."""
    cut_off: int
    """Trials whose last attempt was cut off."""
    again: int
    """Trials that will be retried."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.untried + self.running + self.cut_off + self.again


class CampaignStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `campaign status --json` prints. Unknown is null."""

    campaign_id: CampaignId
    """Id of the campaign."""
    kind: Literal["campaign", "canary"]
    """Whether it is a campaign or a canary, a sample of one."""
    dir: str
    """Its folder."""
    file: str | None
    """Path of its spec; null if the spec was built in memory."""
    is_live: bool
    """Whether it is running."""
    is_pinned: bool
    """Whether `proctor gc` must keep it."""
    runs: int
    """Number of runs."""
    run_id: RunId | None
    """The last run."""
    began_at_ms: int | None
    """Start of the first run, in milliseconds since the epoch."""
    ended_at_ms: int | None
    """End of the last run, in milliseconds since the epoch; null while it runs or if it was killed."""
    ended: str | None
    """How the last run ended: `done`, or what stopped it."""
    trials: int
    """Trials in the plan."""
    settled: int
    """Trials with a final result."""
    left: RemainingTrials
    """Trials without one."""
    attempts: dict[str, int]
    """Attempts by their state in the ledger."""
    outcomes: dict[str, int]
    """Outcomes of the attempts that count, the most frequent first."""
    codes: dict[str, int]
    """Error codes of the attempts that count, the most frequent first."""
    verified: int
    """Results that passed their probes."""
    judged_by_probes: int
    """Results that passed or failed their probes."""
    expected: int
    """Results that came out as expected."""
    unexpected: int
    """Results that did not come out as expected, for reasons that lie with the agent."""
    infra: int
    """Trials whose final result is about the machine, the provider or the run, and not about the agent."""
    verdict: str
    """`running`, or the exit code of the report in words."""
    usd: float | None
    """Known cost of all attempts, in US dollars."""
    usd_unknown: int
    """Attempts whose cost is unknown."""
    per_minute: float | None
    """Attempts that ended per minute in the last run."""
    live: Live | None = None
    """What is running now; null unless the campaign runs."""

    @property
    def can_resume(self) -> bool:
        """Whether `campaign resume` would do something."""
        is_kept = self.kind == "campaign" and self.file is not None
        return bool(is_kept and self.left.total and not self.is_live and self.ended not in USED_UP)


def status_of(campaign: CampaignPaths) -> CampaignStatus:
    """Load the status, from what the report is made of. Raises EvidenceError if ledger or plan cannot be read."""
    try:
        found = load_state(campaign, root=RootPaths(campaign.folder.parent.parent))
    except EvidenceError as error:
        raise EvidenceError(error.code, error.what, file=f"{campaign.folder.name}/{error.file}") from error
    contents, runs = found.contents, found.contents.runs
    run = runs[-1] if runs else None
    kinds, gates = found.kinds, gates_of(found)
    attempts = contents.attempts
    costs = [each.usd for each in attempts if each.usd is not None]
    places = _counted((_place(each), number) for each, number in kinds)
    counted = [(each.counted_attempt, number) for each, number in kinds if each.counted_attempt is not None]
    results = [
        (each.counted_attempt, number)
        for each, number in kinds
        if each.counted_attempt is not None and each.result in OF_THE_AGENT
    ]
    return CampaignStatus(
        campaign_id=CampaignId(campaign.folder.name),
        kind="canary" if found.plan is not None and found.plan.is_canary else "campaign",
        dir=str(campaign.folder),
        file=None if contents.campaign is None else contents.campaign.file or None,
        is_live=found.is_running,
        is_pinned=os.path.lexists(campaign.pin),
        runs=len(runs),
        run_id=None if run is None else run.id,
        began_at_ms=runs[0].began_at_ms if runs else None,
        ended_at_ms=None if run is None else run.ended_at_ms,
        ended=None if run is None else run.how,
        trials=found.count(),
        settled=places.get("settled", 0),
        left=RemainingTrials(
            untried=places.get("untried", 0),
            running=places.get("running", 0),
            cut_off=places.get("cut off", 0),
            again=places.get("again", 0),
        ),
        attempts=dict(Counter(each.state for each in attempts)),
        outcomes=_counted((each.outcome, number) for each, number in counted if each.state == "sealed"),
        codes=_counted((each.code, number) for each, number in counted),
        verified=sum(number for each, number in results if each.verified),
        judged_by_probes=sum(number for each, number in results if each.verified is not None),
        expected=sum(number for each, number in results if each.is_expected is True),
        unexpected=sum(number for each, number in results if each.is_expected is False),
        infra=sum(number for each, number in kinds if each.is_settled and each.result and is_infra(each.result)),
        verdict="running" if found.is_running else verdict_of(exit_of(found, gates), found, gates),
        usd=sum(costs) if costs else None,
        usd_unknown=len(attempts) - len(costs),
        per_minute=_per_minute(run, attempts),
        live=_picture(campaign) if found.is_running else None,
    )


def progress_line(standing: CampaignStatus) -> str:
    """Return the progress in one line."""
    left = standing.left
    counts = (
        (left.running, "running"),
        (left.again, "to be retried"),
        (left.cut_off, "cut off"),
        (left.untried, "not tried yet"),
    )
    parts = [f"{standing.settled:,} of {standing.trials:,} have a final result"]
    return ", ".join([*parts, *(f"{number:,} {word}" for number, word in counts if number)])


def _place(trial: TrialResult) -> str:
    if trial.is_settled:
        return "settled"
    if trial.last is None:
        return "untried"
    return {"running": "running", "partial": "cut off"}.get(trial.last.state, "again")


def _counted(names: Iterable[tuple[str | None, int]]) -> dict[str, int]:
    """Add up the numbers by name, the most frequent first."""
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
    """Return what is running now, as the running Proctor writes it; None if it has not been written yet."""
    with suppress(EvidenceError):
        return read_artifact(campaign.live, Live)
    return None


def count_outcomes(root: RootPaths) -> dict[RuntimeId, dict[str, int]]:
    """Count the outcomes of sealed attempts by runtime, the most frequent first. Unreadable ledgers are skipped."""
    counts: dict[RuntimeId, Counter[str]] = {}
    for campaign in root.campaigns():
        with suppress(EvidenceError):
            for each in read_outcomes(campaign):
                name = str(each.outcome) if each.code is None else f"{each.outcome} ({each.code})"
                counts.setdefault(each.runtime_id, Counter())[name] += each.number
    return {runtime_id: dict(each.most_common()) for runtime_id, each in counts.items()}
