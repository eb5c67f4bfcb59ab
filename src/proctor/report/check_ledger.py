"""Compare the ledger's row of an attempt with the attempt's folder.

Columns that follow from the sealed files are rebuilt and compared. The others are checked against a table of bounds.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from proctor.evidence.layout import CampaignPaths
from proctor.evidence.reader import Finding
from proctor.evidence.summary import AttemptSummary
from proctor.ids import Digest, FlowId, RunId
from proctor.ledger.schema import LedgerAttempt, LedgerRun
from proctor.plan.progress import remedy_for
from proctor.plan.recover import LATER, Remedy, remedy
from proctor.report.cost import Costs, read_costs
from proctor.report.evidence_index import FolderReading
from proctor.report.planned import ReadFile
from proctor.report.row import AttemptRow

if TYPE_CHECKING:
    from proctor.report.campaign_state import CampaignState

_REBUILT: Final = {
    "outcome": "outcome",
    "code": "code",
    "runtime_id": "runtime",
    "tokens": "tokens",
    "summary": "summary",
}
"""Fields of LedgerAttempt that follow from the sealed files, and their columns."""


_CLOCK_STEP_MS: Final = 5 * 60_000
"""By how much the wall clock may be set back during a run, so that times seem to be in the wrong order."""

_IDENTITY: Final = ("campaign_id", "mission_id", "flow_id", "repeat", "trial", "n")
"""Fields of a row that say what an attempt belongs to. The ledger and attempt.json must agree on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLimits:
    """The frozen settings that bound the columns of an attempt."""

    costs: Costs | None = None
    """Prices and models; None if the frozen files do not say."""
    longest_wait_ms: int | None = None
    """The longest wait before a retry; None if the plan cannot be read."""
    plan_digest: Digest | None = None
    """Digest of the plan; None if the plan cannot be read."""
    runs: Mapping[RunId, LedgerRun] = field(default_factory=dict)
    """The runs of the campaign."""


def read_limits(campaign: CampaignPaths, *, state: "CampaignState", read: ReadFile) -> LedgerLimits:
    """Read what is frozen with the campaign. Never raises: check_campaign reports what is wrong with it."""
    plan = state.plan
    return LedgerLimits(
        costs=read_costs(campaign, plan=plan, frozen=state.frozen, read=read),
        longest_wait_ms=None if plan is None else plan.schedule.longest_wait_ms,
        plan_digest=None if plan is None else plan.digest,
        runs={run.id: run for run in state.contents.runs},
    )


def check_ledger_row(
    attempt: LedgerAttempt, folder: FolderReading, *, flow: FlowId, limits: LedgerLimits
) -> Finding | None:
    """Return what is wrong with the ledger's row, if anything is. What is wrong with the folder is not reported."""
    if attempt.state != "sealed":
        detail = next((detail for detail, holds in _UNSEALED.items() if not holds(attempt, folder)), None)
    elif (summary := folder.summary) is None:
        return None
    else:
        wrong = [*_differing_columns(attempt, summary), *_out_of_bounds(attempt, summary, flow, limits)]
        wrong += _impossible_times(attempt, summary, folder.created_at_ms, limits.runs.get(attempt.run))
        detail = f"not what the sealed attempt says: {', '.join(wrong)}" if wrong else None
    return None if detail is None else Finding(code="evidence.ledger", file="ledger.db", detail=detail)


def _differing_columns(attempt: LedgerAttempt, summary: AttemptSummary) -> Iterator[str]:
    rebuilt = attempt.rebuild(summary)
    return (column for field, column in _REBUILT.items() if getattr(attempt, field) != getattr(rebuilt, field))


def folder_findings(
    row: AttemptRow, attempt: LedgerAttempt, folder: FolderReading, *, limits: LedgerLimits
) -> Iterator[Finding]:
    """Yield what is wrong with an attempt's folder as a listing reads it, and with the ledger's row of it.

    `row` is the attempt as the ledger describes it.
    """
    yield from row.findings
    if row.state == "sealed" and folder.row.state == "partial":
        yield Finding(code="evidence.missing-file", file="seal.json", detail="the ledger says that it was sealed")
    elif row.state == "sealed":
        yield from folder.row.findings
    if (wrong := check_ledger_row(attempt, folder, flow=row.flow_id or FlowId(""), limits=limits)) is not None:
        yield wrong
    differing = [name for name in _IDENTITY if getattr(folder.row, name) not in (None, getattr(row, name))]
    if limits.plan_digest is not None and folder.plan_digests is not None:
        differing += [] if folder.plan_digests[0] == limits.plan_digest else ["plan"]
    if differing:
        detail = f"it belongs to another {', '.join(name.removesuffix('_id') for name in differing)}"
        yield Finding(code="evidence.ledger", file="ledger.db", detail=detail)


# ── bounds ──


def _out_of_bounds(
    attempt: LedgerAttempt, summary: AttemptSummary, flow: FlowId, limits: LedgerLimits
) -> Iterator[str]:
    return (column for column, holds in _BOUNDS.items() if not holds(attempt, summary, flow, limits))


def _is_cost_possible(attempt: LedgerAttempt, summary: AttemptSummary, flow: FlowId, limits: LedgerLimits) -> bool:
    return limits.costs is None or limits.costs.agree(attempt.usd, flow=flow, tokens=summary.tokens)


def _is_retry_possible(attempt: LedgerAttempt, summary: AttemptSummary, _: FlowId, limits: LedgerLimits) -> bool:
    return can_be_due(attempt, summary, longest_wait_ms=limits.longest_wait_ms)


def can_be_due(attempt: LedgerAttempt, summary: AttemptSummary, *, longest_wait_ms: int | None) -> bool:
    """Whether the trial can be due again at `retry_at_ms`.

    How long a wait is depends on chance and on other attempts, but it is never shorter than the provider asked for,
    unless that is longer than any wait of the campaign.
    """
    if attempt.retry_at_ms is None:
        return True
    after = remedy(summary.outcome, summary.code, has_begun=summary.has_begun)
    if attempt.ended_at_ms is None or after not in LATER:
        return False
    asked_ms = summary.retry_after_ms or 0
    least_ms = asked_ms if longest_wait_ms is None else min(asked_ms, longest_wait_ms)
    return attempt.retry_at_ms >= attempt.ended_at_ms + least_ms


def _impossible_times(
    attempt: LedgerAttempt, summary: AttemptSummary, created_at_ms: int | None, run: LedgerRun | None
) -> Iterator[str]:
    """Yield the times that cannot be: an attempt begins in its run, before its files, and takes at least its duration.

    A killed run has no end, and a run that the ledger had lost begins with one of its attempts.
    """
    if created_at_ms is None or attempt.ended_at_ms is None:
        return
    earliest_ms = created_at_ms if run is None else min(run.began_at_ms, created_at_ms)
    if not earliest_ms - _CLOCK_STEP_MS <= attempt.started_at_ms <= created_at_ms + _CLOCK_STEP_MS:
        yield "started_at_ms"
    took_ms = attempt.ended_at_ms - attempt.started_at_ms
    latest_ms = attempt.ended_at_ms if run is None or run.ended_at_ms is None else run.ended_at_ms
    if took_ms < summary.duration_ms - _CLOCK_STEP_MS or attempt.ended_at_ms > latest_ms + _CLOCK_STEP_MS:
        yield "ended_at_ms"


def _has_end(attempt: LedgerAttempt, *_: object) -> bool:
    return attempt.ended_at_ms is not None


_BOUNDS: Final[dict[str, Callable[[LedgerAttempt, AttemptSummary, FlowId, LedgerLimits], bool]]] = {
    "usd": _is_cost_possible,
    "retry_at_ms": _is_retry_possible,
    "ended_at_ms": _has_end,
}
"""Checks of the columns of a sealed attempt that do not follow from its files."""


def _is_unsealed(attempt: LedgerAttempt, folder: FolderReading) -> bool:
    """Whether the attempt is without an intact seal. A disk that failed at the seal leaves another code."""
    return attempt.state != "abandoned" or remedy_for(attempt) is not Remedy.REDO or not folder.is_intact


def _is_not_due(attempt: LedgerAttempt, _: FolderReading) -> bool:
    """Whether no retry is recorded: a trial whose attempt has no seal is tried again at once, or in the next run."""
    return attempt.retry_at_ms is None


_UNSEALED: Final[dict[str, Callable[[LedgerAttempt, FolderReading], bool]]] = {
    "it has no seal there, but it was sealed": _is_unsealed,
    "without a seal nothing can be due: retry_at_ms": _is_not_due,
}
"""Checks of a row without a seal, by what is reported if they fail."""
