"""A campaign as its ledger shows it now: of each trial the attempt that speaks for it. Folders stay closed."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord, AttemptReport
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths
from proctor.evidence.reader import Finding, read_artifact
from proctor.evidence.summary import summarize
from proctor.ids import AttemptId, CampaignId
from proctor.ledger.reader import is_live, read_ledger
from proctor.ledger.schema import LedgerAttempt, LedgerContents, LedgerTrial
from proctor.plan.progress import RetryBudget, fold_attempts
from proctor.report.planned import PlanSummary, read_plan, read_selection
from proctor.report.score import INVALID, standing
from proctor.spec.campaign_options import SelectSpec

Damage = Mapping[AttemptId, tuple[Finding, ...]]
"""What an examination found wrong with attempts."""


class TrialResult(msgspec.Struct, frozen=True, gc=False):
    """A trial of the plan, and the attempt that speaks for it, if it was ever tried: its result, else its last.

    `stands` is of its result, and None where it has none. One that is not settled is to be tried, be it
    anew; `last` is the attempt that was made last.
    """

    trial: LedgerTrial
    spoken: LedgerAttempt | None = None
    stands: str | None = None
    is_settled: bool = False
    last: LedgerAttempt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignState:
    """A campaign as its ledger shows it now. `attempts` are the ledger's, those it still calls running as their seals
    say.
    """

    campaign_id: CampaignId
    contents: LedgerContents
    attempts: Sequence[LedgerAttempt]
    plan: PlanSummary
    selected: SelectSpec | None
    trials: tuple[TrialResult, ...]
    is_running: bool


def read_trials(campaign: CampaignPaths, *, root: RootPaths, damage: Damage | None = None) -> CampaignState:
    """EvidenceError where ledger or plan cannot be read. What is damaged is no result of the agent's."""
    is_running = is_live(campaign)  # asked first: what ends meanwhile is told as running
    contents, plan = read_ledger(campaign), read_plan(campaign)
    known, retry_budget, damage = look_up(contents, root=root), plan.retry_budget, damage or {}
    tries = known.attempts_of
    return CampaignState(
        campaign_id=CampaignId(campaign.folder.name),
        contents=contents,
        attempts=known.attempts,
        plan=plan,
        selected=read_selection(campaign),
        trials=tuple(
            _trial_result(trial, tries.get(trial.id, ()), damage, retry_budget=retry_budget)
            for trial in contents.trials
        ),
        is_running=is_running,
    )


def _trial_result(
    trial: LedgerTrial, tries: Sequence[LedgerAttempt], damage: Damage, *, retry_budget: RetryBudget
) -> TrialResult:
    """By the same fold that resume goes by."""
    if not tries:
        return TrialResult(trial)
    stands, last = fold_attempts(tries, retry_budget=retry_budget), tries[-1]
    if stands.result is None:
        return TrialResult(trial, last, last=last)
    spoken = last if last.n == stands.result else next(each for each in tries if each.n == stands.result)
    how = INVALID if spoken.id in damage else standing(spoken)
    return TrialResult(trial, spoken, how, stands.is_settled, last)


def count_alike(trials: Iterable[TrialResult]) -> list[tuple[TrialResult, int]]:
    """Of the trials that came to the same, the first and how many they are: endings are few, however many trials."""
    first: dict[tuple[object, ...] | None, TrialResult] = {}
    counts: Counter[tuple[object, ...] | None] = Counter()
    for each in trials:
        said, last = each.spoken, each.last
        key = (
            (
                each.stands,
                each.is_settled,
                said.state,
                said.outcome,
                said.code,
                said.verified,
                said.is_expected,
                last.state,
            )
            if said is not None and last is not None
            else None
        )
        if key not in first:
            first[key] = each
        counts[key] += 1
    return [(each, counts[key]) for key, each in first.items()]


def look_up(contents: LedgerContents, *, root: RootPaths) -> LedgerContents:
    """The same, each attempt that the ledger still calls running as its seal says."""
    open_ = {each.trial for tries in contents.attempts_of.values() for each in tries if each.state == "running"}
    looked_up = {trial: [_looked_up(each, root=root) for each in contents.attempts_of[trial]] for trial in open_}
    return replace(contents, attempts_of={**contents.attempts_of, **looked_up}) if looked_up else contents


def _looked_up(attempt: LedgerAttempt, *, root: RootPaths) -> LedgerAttempt:
    """Where the ledger was not told how it ended, its seal may."""
    if attempt.state != "running":
        return attempt
    paths: AttemptPaths = root.run(attempt.run).attempt(attempt.trial, n=attempt.n)
    if not os.path.lexists(paths.seal):
        return attempt
    try:
        record, report = read_artifact(paths.attempt, AttemptRecord), read_artifact(paths.report, AttemptReport)
    except EvidenceError:
        return attempt  # checking the evidence reports it
    summary = summarize(record, report)
    return msgspec.structs.replace(
        attempt,
        state="sealed",
        outcome=summary.outcome,
        code=summary.code,
        runtime_id=summary.runtime_id,
        tokens=None if summary.tokens is None else summary.tokens.total,
        summary=summary,
    )
