"""The rows of a progress stream, which a running campaign writes for programs: JSON Lines, one row per event."""

from typing import Literal

import msgspec

from proctor.evidence.live import LiveLimit
from proctor.evidence.summary import AttemptSummary
from proctor.ids import AttemptId, CampaignId, RunId, RuntimeId


class ProgressRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", gc=False):
    """Base of all rows. Readers must ignore row types and fields that they do not know."""

    at_ms: int
    """Wall-clock time of the row, in milliseconds since the epoch."""


class RunBegan(ProgressRow, tag="run.began", frozen=True, kw_only=True):
    """A run has begun."""

    schema_version: Literal[1] = 1
    """Version of the progress stream."""
    campaign_id: CampaignId
    """Id of the campaign."""
    run_id: RunId
    """Id of the run."""
    trials: int
    """Trials of the campaign, including settled ones."""
    settled: int
    """Trials that have a result from earlier runs."""
    dir: str
    """Path of the campaign's folder."""


class AttemptStarted(ProgressRow, tag="attempt.started", frozen=True, kw_only=True):
    """An attempt is about to begin."""

    attempt_id: AttemptId
    """Id of the attempt."""
    runtime_id: RuntimeId
    """Runtime that it uses."""


class AttemptPhase(ProgressRow, tag="attempt.phase", frozen=True, kw_only=True):
    """An attempt has entered another phase."""

    attempt_id: AttemptId
    """Id of the attempt."""
    phase: str
    """The phase, such as `turn_running` or `probing`."""


class ToolCalled(ProgressRow, tag="tool", frozen=True, kw_only=True):
    """An attempt's agent calls a tool. Calls in quick succession share a row, which names the latest."""

    attempt_id: AttemptId
    """Id of the attempt."""
    name: str
    """Name of the tool."""
    doing: str
    """What the call does, on one line: for example the command or the changed files. Redacted."""
    calls: int
    """Tool calls of the attempt so far."""


class UsageSeen(ProgressRow, tag="usage", frozen=True, kw_only=True):
    """What an attempt has used so far. Reports in quick succession share a row, which has the latest."""

    attempt_id: AttemptId
    """Id of the attempt."""
    tokens: int
    """Tokens used so far."""
    usd: float | None
    """Cost so far, in US dollars; null if unknown."""


class AttemptSettled(ProgressRow, tag="attempt.settled", frozen=True, kw_only=True):
    """An attempt has ended, and the ledger has its result. If it was abandoned, only its code is known."""

    attempt_id: AttemptId
    """Id of the attempt."""
    state: Literal["sealed", "abandoned"]
    """State of its ledger row. `abandoned` means that its evidence could not be completed."""
    code: str | None
    """Code of the failure, or of the error that made Proctor abandon the attempt; null if it completed."""
    summary: AttemptSummary | None
    """What its sealed files say; null if it was abandoned."""
    usd: float | None
    """Cost of the attempt, in US dollars; null if unknown."""
    retry_at_ms: int | None
    """When the trial is retried, in milliseconds since the epoch; null if it is not."""
    settled: int
    """Trials of the campaign that have a result."""
    trials: int
    """Trials of the campaign."""


class LimitsChanged(ProgressRow, tag="limits", frozen=True, kw_only=True):
    """The concurrency limits or the queue have changed."""

    waiting: int
    """Trials that wait to start."""
    limits: tuple[LiveLimit, ...]
    """State of every concurrency limit."""


class RunStopping(ProgressRow, tag="run.stopping", frozen=True, kw_only=True):
    """The run was asked to stop."""

    how: str
    """How it stops, in words."""


class RunEnded(ProgressRow, tag="run.ended", frozen=True, kw_only=True):
    """The run has ended. This is the last row."""

    how: str
    """`done`, why the run stopped early, or the code of the error that ended it."""
    settled: int
    """Trials of the campaign that have a result."""
    trials: int
    """Trials of the campaign."""


class RowsLeftOut(ProgressRow, tag="left.out", frozen=True, kw_only=True):
    """Rows were dropped because the reader was too slow. They belong between the rows around this one."""

    rows: int
    """Rows that were dropped."""


AnyProgress = (
    RunBegan
    | AttemptStarted
    | AttemptPhase
    | ToolCalled
    | UsageSeen
    | AttemptSettled
    | LimitsChanged
    | RunStopping
    | RunEnded
    | RowsLeftOut
)
