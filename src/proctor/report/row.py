"""What a listing and a report say of one attempt: a row, and what the whole comes to."""

from typing import Literal

import msgspec

from proctor.errors import Bucket
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import Artifact
from proctor.evidence.reader import Problem
from proctor.ids import AttemptId, CampaignId, CellId, FlowId, MissionId, RunId, StrategyId
from proctor.report.gates import Gate

State = Literal["running", "sealed", "partial", "abandoned", "unreadable"]
"""`partial` was cut off, `abandoned` could not keep its evidence, `unreadable` does not even say what it is."""

Evidence = Literal["unchecked", "valid", "partial", "invalid"]


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One attempt, as the ledger or its folder tells. None is unknown; `dir` is where it can be read.

    `is_superseded` where a later attempt of its cell counts instead of it.
    """

    attempt_id: AttemptId
    run_id: RunId
    campaign_id: CampaignId | None = None
    cell: CellId | None = None
    mission_id: MissionId | None = None
    flow_id: FlowId | None = None
    repeat: int | None = None
    n: int | None = None
    is_superseded: bool = False
    runtime: StrategyId | None = None
    state: State
    outcome: Outcome | None = None
    code: str | None = None
    bucket: Bucket | None = None
    retryable: bool | None = None
    todo: str | None = None
    claimed: bool | None = None
    verified: bool | None = None
    expectation_met: bool | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    duration_ms: int | None = None
    dir: str
    problems: tuple[Problem, ...] = ()

    @property
    def ref(self) -> str:
        """What names it among all attempts of an evidence root."""
        return f"{self.run_id}/{self.attempt_id}"


class ReportRow(AttemptRow, frozen=True, kw_only=True):
    """With what only the evidence itself holds: why, and whether it can be trusted."""

    detail: str | None = None
    reasons: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    evidence: Evidence = "unchecked"


class Report(Artifact, frozen=True, kw_only=True):
    """report.json, and what `run` and `report` print as JSON. `exit` is the code the command ends with."""

    campaign_id: CampaignId | None
    run_ids: tuple[RunId, ...]
    exit: int
    verdict: str
    attempts: tuple[ReportRow, ...]
    missing_cells: tuple[CellId, ...] = ()
    gates: tuple[Gate, ...] = ()
    problems: tuple[Problem, ...] = ()
