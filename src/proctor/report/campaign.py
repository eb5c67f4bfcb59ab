"""The report of a campaign, in whatever state the campaign is. Text, Markdown, JSON and JUnit are renderings of it."""

from collections.abc import Iterator, Mapping

from proctor.errors import EvidenceError
from proctor.event.outcome import OPERATOR_CANCEL, Outcome
from proctor.evidence.artifacts import Artifact, GateReason, Part
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.reader import Finding
from proctor.evidence.summary import FAILED, UNKNOWN
from proctor.ids import AttemptId, CampaignId, Digest, FlowId, MissionId, RunId, TrialId
from proctor.report.campaign_state import (
    CampaignState,
    TrialResult,
    ledger_finding,
    load_folders,
    load_ledger_state,
)
from proctor.report.classify import INVALID, OF_THE_AGENT
from proctor.report.evidence_index import EvidenceIndex
from proctor.report.gates import Gate, gates_of
from proctor.report.row import AttemptRow, find_chain, sum_chain
from proctor.report.score import MissionScore, Score, Sum, merge_sums, sum_results
from proctor.report.verdict import exit_of, verdict_of
from proctor.spec.campaign_options import SelectSpec


class RunSummary(Part, frozen=True, kw_only=True):
    """One run of the campaign."""

    run_id: RunId
    """Id of the run."""
    began_at_ms: int | None
    """Start, in milliseconds since the epoch; null if the ledger cannot be read."""
    ended_at_ms: int | None
    """End, in milliseconds since the epoch; null while it runs or if it was killed."""
    how: str | None
    """How it ended: `done`, or what stopped it; null while it runs or if it was killed."""


class FlowSummary(Part, frozen=True, kw_only=True):
    """One flow."""

    flow_id: FlowId
    """Id of the flow."""
    score: Score
    """Its results."""


class MissionSummary(Part, frozen=True, kw_only=True):
    """One mission in every flow."""

    mission_id: MissionId
    """Id of the mission."""
    differs: bool
    """Whether the flows have different rates."""
    flows: dict[FlowId, MissionScore]
    """Its results, by flow."""


class MissingResult(Part, frozen=True, kw_only=True):
    """A trial without a result."""

    trial: TrialId
    """Id of the trial."""
    mission_id: MissionId | None
    """Its mission; null if unknown."""
    flow_id: FlowId | None
    """Its flow; null if unknown."""
    repeat: int | None
    """Its repeat, from 1; null if unknown."""
    why: str
    """Why it has no result."""
    code: str | None = None
    """Error code of its last attempt."""


class FailedResult(Part, frozen=True, kw_only=True):
    """A result that failed for reasons that lie with the agent, or that is not as expected."""

    attempt_id: AttemptId
    """Id of the attempt."""
    run_id: RunId
    """Its run."""
    mission_id: MissionId | None
    """Its mission; null if unknown."""
    flow_id: FlowId | None
    """Its flow; null if unknown."""
    why: str
    """Its error code, or what judged it."""
    is_expected: bool | None
    """Whether the mission expected this."""


class UnjudgedResult(Part, frozen=True, kw_only=True):
    """A result that the mission's probes could not judge. It is not scored."""

    attempt_id: AttemptId
    """Id of the attempt."""
    run_id: RunId
    """Its run."""
    mission_id: MissionId | None
    """Its mission; null if unknown."""
    flow_id: FlowId | None
    """Its flow; null if unknown."""
    why: GateReason | None
    """The kind of the reason; null if no probe was run on the agent's workspace."""
    reasons: tuple[str, ...]
    """What each probe observed."""


class Replacement(Part, frozen=True, kw_only=True):
    """A request to replace the scored result of a trial. The latest one of a trial decides which attempt counts."""

    trial: TrialId
    """The trial."""
    mission_id: MissionId | None
    """Its mission; null if unknown."""
    flow_id: FlowId | None
    """Its flow; null if unknown."""
    reason: str
    """Why, in the user's words."""
    at_ms: int
    """When it was requested, in milliseconds since the epoch."""
    first_attempt_id: AttemptId | None
    """The attempt that counted before any replacement; null if the ledger does not have it."""
    first_result: str
    """Its result: `passed` or `failed`."""
    attempt_id: AttemptId | None
    """The attempt that counts now."""
    result: str
    """Its result."""


class ContinuedTrial(Part, frozen=True, kw_only=True):
    """A trial whose counted attempt continues others after a wait for a rate limit or a quota. It is not comparable
    with an uninterrupted one."""

    trial: TrialId
    """The trial."""
    mission_id: MissionId | None
    """Its mission; null if unknown."""
    flow_id: FlowId | None
    """Its flow; null if unknown."""
    attempts: tuple[AttemptId, ...]
    """The attempts, oldest first. The last one counts."""
    tokens: int | None
    """Tokens of all of them; null if those of one are unknown."""
    usd: float | None
    """What all of them cost, in US dollars; null if that of one is unknown."""
    duration_ms: int | None
    """How long all of them took, without the waits, in milliseconds."""


class Mismatch(Part, frozen=True, kw_only=True):
    """A result where the agent says one thing and the probes another."""

    attempt_id: AttemptId
    """Id of the attempt."""
    claimed: bool
    """What the agent says."""
    verified: bool
    """What the probes found."""


class Effort(Part, frozen=True, kw_only=True):
    """All attempts, also those that do not count: all of them were paid for."""

    attempts: int
    """Number of attempts."""
    not_counted: int
    """Attempts that are not the result of their trial."""
    tokens: int
    """Known tokens."""
    tokens_unknown: int
    """Attempts whose tokens are unknown, or not known yet."""
    usd: float | None
    """Known cost, in US dollars; null if none is known."""
    usd_unknown: int
    """Attempts whose cost is unknown, or not known yet."""


class CampaignReport(Artifact, frozen=True, kw_only=True):
    """report.json, and what `run`, `report` and `campaign report` print as JSON."""

    campaign_id: CampaignId | None
    """The campaign; null for attempts of several campaigns."""
    spec_file: str | None
    """Path of the spec; null if it was built in memory or is unknown."""
    spec_digest: Digest | None
    """Digest of the spec; null if the ledger cannot be read."""
    plan_digest: Digest | None
    """Digest of the plan; null if the plan cannot be read."""
    selected: SelectSpec | None
    """How the command chose among the spec's missions; null if it did not, or if the frozen spec cannot be read."""
    failed_in: CampaignId | None
    """The campaign whose failed trials are the only ones here (`run --failed`); null for any other campaign."""
    is_canary: bool
    """Whether this is a canary: a sample of the campaign."""
    is_running: bool
    """Whether the campaign is running."""
    is_complete: bool
    """Whether the campaign has ended with a result for every trial."""
    is_checked: bool
    """Whether the evidence of the attempts was examined."""
    runs: tuple[RunSummary, ...]
    """The runs, oldest first."""
    exit: int
    """The exit code of the command."""
    verdict: str
    """The exit code in words: `ok`, `not as expected`, `blocked by a gate`, `infrastructure failed`, `inconclusive`,
    `evidence invalid` or `interrupted`."""
    score: Score
    """All results."""
    effort: Effort
    """All attempts."""
    flows: tuple[FlowSummary, ...]
    """The results by flow."""
    missions: tuple[MissionSummary, ...]
    """The results by mission."""
    failures: tuple[FailedResult, ...]
    """Results that failed for reasons that lie with the agent, or that are not as expected."""
    unjudged: tuple[UnjudgedResult, ...]
    """Results that the mission's probes could not judge. They are not scored, and block publishing."""
    mismatches: tuple[Mismatch, ...]
    """Results where claim and probes disagree."""
    scripted_flows: tuple[FlowId, ...]
    """The flows whose results come from the scripted model: they measure a script, not an agent's model."""
    continued: tuple[ContinuedTrial, ...]
    """Trials that were continued after a wait, and are not comparable with uninterrupted ones."""
    replacements: tuple[Replacement, ...]
    """Requests to replace a scored result, oldest first. They block publishing."""
    gates: tuple[Gate, ...]
    """The campaign's gates; none if the plan cannot be read."""
    missing: tuple[MissingResult, ...]
    """Trials without a result."""
    attempts: tuple[AttemptRow, ...]
    """All attempts, in plan order; none if they are omitted."""
    are_attempts_omitted: bool = False
    """Whether the attempts are omitted: `campaign report --json` prints them with `--attempts` or `--strict`."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with evidence that belongs to no single attempt."""

    @property
    def run_ids(self) -> tuple[RunId, ...]:
        """Ids of the runs, oldest first."""
        return tuple(run.run_id for run in self.runs)

    @property
    def blocked(self) -> tuple[Gate, ...]:
        """The gates that block."""
        return tuple(gate for gate in self.gates if gate.blocked)

    @property
    def counted_attempts(self) -> list[AttemptRow]:
        """One attempt for each trial that was tried: its result, or else its last.

        If it continues others, it has the usage, cost and duration of all of them.
        """
        rows: dict[object, AttemptRow] = {}
        others: dict[object, dict[AttemptId, AttemptRow]] = {}
        for row in self.attempts if self.continued else ():
            others.setdefault(row.trial, {})[row.attempt_id] = row
        for row in self.attempts:
            # An attempt that does not name its trial counts alone; a new object is equal to nothing else.
            key = object() if row.trial is None else row.trial
            if key not in rows and not row.is_superseded:
                rows[key] = row if row.continues is None else sum_chain(find_chain(row, others.get(row.trial, {})))
        return list(rows.values())

    @property
    def untried(self) -> list[TrialId]:
        """The trials without any attempt."""
        tried = {row.trial for row in self.attempts}
        return [each.trial for each in self.missing if each.trial not in tried]

    @property
    def operator_cancels(self) -> list[AttemptRow]:
        """The attempts that an operator cancelled alone, counted or not. They block publishing."""
        return [row for row in self.attempts if row.code == OPERATOR_CANCEL]

    @property
    def degraded_attempts(self) -> list[AttemptRow]:
        """The counted attempts to which their context engine did not apply, or not in full."""
        return [row for row in self.counted_attempts if row.degraded is not None]

    @property
    def invalid_attempts(self) -> list[AttemptRow]:
        """The counted attempts whose evidence is invalid."""
        return [row for row in self.counted_attempts if row.is_invalid]


def load_campaign(campaign: CampaignPaths, *, root: RootPaths, index: EvidenceIndex | None = None) -> CampaignReport:
    """Load the report of a campaign from its ledger, or from its folders if the ledger cannot be read."""
    return build_report(load_campaign_state(campaign, root=root, index=index))


def load_campaign_state(
    campaign: CampaignPaths, *, root: RootPaths, index: EvidenceIndex | None = None
) -> CampaignState:
    """Load a campaign. If its ledger cannot be read, load the folders that name it. Never raises EvidenceError."""
    index = index or EvidenceIndex()
    try:
        return load_ledger_state(campaign, root=root, index=index)
    except EvidenceError as error:
        return load_folders(
            (paths for run in root.runs() for paths in run.attempts()),
            index=index,
            campaign_id=CampaignId(campaign.folder.name),
            findings=(ledger_finding(campaign, error),),
        )


def build_report(state: CampaignState, *, is_interrupted: bool = False) -> CampaignReport:
    """Compose the report. Pure."""
    sums = sum_results(state.trials)
    by_flow: dict[FlowId, Sum] = {}
    for (_, flow), each in sums.items():
        by_flow.setdefault(flow, Sum()).merge(each)
    gates = gates_of(state)
    missing = tuple(_missing(state))
    exit_ = exit_of(state, gates, is_interrupted=is_interrupted)
    origin = state.contents.campaign
    return CampaignReport(
        campaign_id=state.campaign_id,
        spec_file=None if origin is None else origin.file or None,
        spec_digest=None if origin is None else origin.spec,
        plan_digest=None if state.plan is None else state.plan.digest,
        selected=None if state.frozen.selected == SelectSpec() else state.frozen.selected,
        failed_in=state.frozen.failed_in,
        is_canary=state.plan is not None and state.plan.is_canary,
        is_running=state.is_running,
        is_complete=bool(state.kinds) and not missing and not state.is_running,
        is_checked=state.is_checked,
        runs=tuple(_runs(state)),
        exit=exit_,
        verdict=verdict_of(exit_, state, gates),
        score=merge_sums(by_flow.values()).score(),
        effort=effort_of(state),
        flows=tuple(FlowSummary(flow_id=flow, score=each.score()) for flow, each in by_flow.items()),
        missions=tuple(_missions(sums)),
        failures=tuple(_failures(state)),
        unjudged=tuple(_unjudged(state)),
        mismatches=tuple(_mismatches(state)),
        scripted_flows=_scripted_flows(state),
        continued=tuple(_continued(state)),
        replacements=tuple(_replacements(state)),
        gates=gates,
        missing=missing,
        attempts=state.attempts,
        findings=state.findings,
    )


def _runs(state: CampaignState) -> Iterator[RunSummary]:
    known = {run.id: run for run in state.contents.runs}
    for run_id in state.run_ids:
        run = known.get(run_id)
        yield RunSummary(
            run_id=run_id,
            began_at_ms=None if run is None else run.began_at_ms,
            ended_at_ms=None if run is None else run.ended_at_ms,
            how=None if run is None else run.how,
        )


def _missions(sums: Mapping[tuple[MissionId, FlowId], Sum]) -> Iterator[MissionSummary]:
    missions: dict[MissionId, dict[FlowId, MissionScore]] = {}
    for (mission, flow), each in sums.items():
        missions.setdefault(mission, {})[flow] = each.mission_score()
    for mission, flows in missions.items():
        rates = {score.passes.rate for score in flows.values() if score.passes.rate is not None}
        yield MissionSummary(mission_id=mission, differs=len(rates) > 1, flows=flows)


def _failures(state: CampaignState) -> Iterator[FailedResult]:
    for each in state.matching(_has_failed):
        if (row := each.counted_attempt) is not None:
            yield FailedResult(
                attempt_id=row.attempt_id,
                run_id=row.run_id,
                mission_id=each.mission,
                flow_id=each.flow,
                why=why_failed(row),
                is_expected=row.is_expected,
            )


def _has_failed(trial: TrialResult) -> bool:
    row = trial.counted_attempt
    is_unexpected = row is not None and row.is_expected is False
    return trial.result == FAILED or (trial.result in OF_THE_AGENT and is_unexpected)


def _unjudged(state: CampaignState) -> Iterator[UnjudgedResult]:
    for each in state.matching(_is_unjudged):
        row = each.counted_attempt
        if row is not None and row.summary is not None:
            yield UnjudgedResult(
                attempt_id=row.attempt_id,
                run_id=row.run_id,
                mission_id=each.mission,
                flow_id=each.flow,
                why=row.summary.unjudged,
                reasons=row.summary.reasons,
            )


def _is_unjudged(trial: TrialResult) -> bool:
    row = trial.counted_attempt
    return trial.result == UNKNOWN and row is not None and row.summary is not None and row.summary.is_unjudged


def why_failed(row: AttemptRow) -> str:
    """Return the error code of a failed result, or what judged it."""
    if row.code is not None:
        return row.code
    keys = (
        [] if row.summary is None else [key for key, is_met in row.summary.expectation.keys.items() if is_met is False]
    )
    if keys:
        return f"not as expected: {', '.join(keys)}"
    return "not verified by its probes" if row.verified is False else str(row.outcome or Outcome.UNKNOWN)


def _mismatches(state: CampaignState) -> Iterator[Mismatch]:
    for each in state.matching(_is_mismatch):
        row = each.counted_attempt
        if row is not None and row.claimed is not None and row.verified is not None:
            yield Mismatch(attempt_id=row.attempt_id, claimed=row.claimed, verified=row.verified)


def _is_mismatch(trial: TrialResult) -> bool:
    row = trial.counted_attempt
    if trial.result in (None, INVALID, UNKNOWN) or row is None or row.claimed is None or row.verified is None:
        return False
    return row.claimed is not row.verified


def _scripted_flows(state: CampaignState) -> tuple[FlowId, ...]:
    scripted = state.matching(lambda trial: trial.is_scripted)
    return tuple(dict.fromkeys(each.flow for each in scripted if each.flow is not None))


def _continued(state: CampaignState) -> Iterator[ContinuedTrial]:
    for each in state.matching(lambda trial: len(trial.chain) > 1):
        if (row := each.measured) is not None and each.id is not None:
            yield ContinuedTrial(
                trial=each.id,
                mission_id=each.mission,
                flow_id=each.flow,
                attempts=tuple(attempt.attempt_id for attempt in each.chain),
                tokens=row.tokens,
                usd=row.usd,
                duration_ms=row.duration_ms,
            )


def _replacements(state: CampaignState) -> Iterator[Replacement]:
    trials = {each.id: each for each in state.trials} if state.contents.replacements else {}
    for each in state.contents.replacements:
        trial = trials[each.trial]
        first, counted = trial.first_attempt, trial.counted_attempt
        yield Replacement(
            trial=each.trial,
            mission_id=trial.mission,
            flow_id=trial.flow,
            reason=each.reason,
            at_ms=each.at_ms,
            first_attempt_id=None if first is None else first.attempt_id,
            first_result=trial.first_result or UNKNOWN,
            attempt_id=None if counted is None else counted.attempt_id,
            result=trial.result or UNKNOWN,
        )


def _missing(state: CampaignState) -> Iterator[MissingResult]:
    for each in state.matching(lambda trial: trial.result is None):
        row = each.counted_attempt
        yield MissingResult(
            trial=each.id or TrialId("" if row is None else row.attempt_id),
            mission_id=each.mission,
            flow_id=each.flow,
            repeat=each.repeat,
            why=_why_missing(each, is_running=state.is_running),
            code=None if row is None else row.code,
        )


def _why_missing(trial: TrialResult, *, is_running: bool) -> str:
    match trial.counted_attempt:
        case None:
            return "not tried yet" if is_running else "never tried"
        case AttemptRow(state="running"):
            return "running"
        case AttemptRow(state="sealed", outcome=Outcome.CANCELLED, code=code):
            return "cancelled by the operator" if code == OPERATOR_CANCEL else "cancelled"
        case AttemptRow(state="sealed"):
            return "to be retried"
        case _:
            return "cut off"


def effort_of(state: CampaignState) -> Effort:
    """Add up all attempts."""
    attempts = state.attempts
    tokens = [each.tokens for each in attempts if each.tokens is not None]
    usd = [each.usd for each in attempts if each.usd is not None]
    return Effort(
        attempts=len(attempts),
        not_counted=len(attempts) - state.count(lambda trial: trial.result is not None),
        tokens=sum(tokens),
        tokens_unknown=len(attempts) - len(tokens),
        usd=sum(usd) if usd else None,
        usd_unknown=len(attempts) - len(usd),
    )
