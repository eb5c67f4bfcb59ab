"""The rows of a progress stream: what a running campaign tells programs, one JSON object a line."""

from typing import Literal

import msgspec

from proctor.event.outcome import Outcome
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId, CampaignId, RunId, StrategyId


class ProgressRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", gc=False):
    """Root of all. New kinds of rows and new fields may come; a reader passes over what it does not know."""

    at_ms: int


class RunBegan(ProgressRow, tag="run.began", frozen=True, kw_only=True):
    """A run has begun; `settled` of its cells have a result from runs before it. `dir` is the campaign's folder."""

    schema_version: Literal[1] = 1
    campaign_id: CampaignId
    run_id: RunId
    cells: int
    settled: int
    dir: str


class AttemptClaimed(ProgressRow, tag="attempt.claimed", frozen=True, kw_only=True):
    """An attempt is about to begin."""

    attempt_id: AttemptId
    strategy: StrategyId


class AttemptPhase(ProgressRow, tag="attempt.phase", frozen=True, kw_only=True):
    """It is in another state."""

    attempt_id: AttemptId
    phase: str


class ToolCalled(ProgressRow, tag="tool", frozen=True, kw_only=True):
    """What it does now. `calls` counts all tool calls so far: where they come fast, some have no row of their own."""

    attempt_id: AttemptId
    name: str
    doing: str
    calls: int


class UsageSeen(ProgressRow, tag="usage", frozen=True, kw_only=True):
    """What it has used so far. Where that is told often, only the latest has a row."""

    attempt_id: AttemptId
    tokens: int
    usd: float | None


class AttemptSettled(ProgressRow, tag="attempt.settled", frozen=True, kw_only=True):
    """It is over and in the ledger. `retryAtMs` is when its cell is tried again; `settled` of `cells` are done."""

    attempt_id: AttemptId
    state: Literal["sealed", "abandoned"]
    outcome: Outcome | None
    code: str | None
    claimed: bool | None
    verified: bool | None
    expectation_met: bool | None
    tool_calls: int | None
    tokens: int | None
    usd: float | None
    duration_ms: int | None
    retry_at_ms: int | None
    settled: int
    cells: int


class LimitsChanged(ProgressRow, tag="limits", frozen=True, kw_only=True):
    """What is rationed, and how many cells wait."""

    waiting: int
    limits: tuple[LiveLimit, ...]


class RunStopping(ProgressRow, tag="run.stopping", frozen=True, kw_only=True):
    """Somebody asked it to stop; `how` says what is done about it."""

    how: str


class RunEnded(ProgressRow, tag="run.ended", frozen=True, kw_only=True):
    """The run is over: "done", what kept it from going on, or the code of the error that ended it."""

    how: str
    settled: int
    cells: int


class RowsLeftOut(ProgressRow, tag="left.out", frozen=True, kw_only=True):
    """So many rows had no room while the reader was slow. They came between the rows before and after this one."""

    rows: int


AnyProgress = (
    RunBegan
    | AttemptClaimed
    | AttemptPhase
    | ToolCalled
    | UsageSeen
    | AttemptSettled
    | LimitsChanged
    | RunStopping
    | RunEnded
    | RowsLeftOut
)
