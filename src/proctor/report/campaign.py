"""The report of a campaign, whatever state it is in. Pure."""

from collections.abc import Iterator, Mapping

from proctor.errors import Exit, bucket_of
from proctor.event.outcome import Outcome
from proctor.evidence.reader import Finding
from proctor.ids import AttemptId, CampaignId, Digest, FlowId, MissionId, RunId, TrialId
from proctor.ledger.schema import LedgerAttempt
from proctor.plan.recover import CUT_OFF
from proctor.report.campaign_state import CampaignState, Damage, count_alike
from proctor.report.gates import Gate, gates_of
from proctor.report.score import FAILED, INVALID, MissionScore, ReportStruct, Score, Sum
from proctor.report.sums import sums_of
from proctor.report.verdict import WORDS, judge_result, worst
from proctor.spec.campaign_options import SelectSpec


class RunSummary(ReportStruct, frozen=True, kw_only=True):
    """One execution. `how` it ended is None where it still runs or was killed."""

    run_id: RunId
    began_at_ms: int
    ended_at_ms: int | None
    how: str | None


class FlowSummary(ReportStruct, frozen=True, kw_only=True):
    flow_id: FlowId
    score: Score


class MissionSummary(ReportStruct, frozen=True, kw_only=True):
    """A mission in every flow. It differs where the rates do."""

    mission_id: MissionId
    differs: bool
    flows: dict[FlowId, MissionScore]


class Missing(ReportStruct, frozen=True, kw_only=True):
    """A trial without a result, and what came of its last attempt, if there was one."""

    trial: TrialId
    mission_id: MissionId
    flow_id: FlowId
    repeat: int
    why: str
    code: str | None = None


class Failure(ReportStruct, frozen=True, kw_only=True):
    """A result that did not pass by the agent's own doing. `why` is its code, or what judged it."""

    attempt_id: AttemptId
    run_id: RunId
    mission_id: MissionId
    flow_id: FlowId
    why: str


class Mismatch(ReportStruct, frozen=True, kw_only=True):
    """The agent says one thing, and the probes another."""

    attempt_id: AttemptId
    claimed: bool
    verified: bool


class Effort(ReportStruct, frozen=True, kw_only=True):
    """Of all attempts, those that do not count among them: all were paid for.

    `tokens` and `usd` are what is known, beside how many do not tell theirs, be it not yet.
    """

    attempts: int
    not_counted: int
    tokens: int
    tokens_unknown: int
    usd: float | None
    usd_unknown: int


class Damaged(ReportStruct, frozen=True, kw_only=True):
    attempt_id: AttemptId
    findings: tuple[Finding, ...]


class CampaignReport(ReportStruct, frozen=True, kw_only=True):
    """What `campaign report --json` prints. Whole is a campaign that has ended with a result for every trial.

    `selected` is how its command chose among the spec's missions, of which the others have no trials; null where it did
    not, or where the frozen spec cannot be read.
    """

    schema_version: int = 1
    campaign_id: CampaignId
    spec_file: str | None
    spec_digest: Digest | None
    plan_digest: Digest
    selected: SelectSpec | None
    is_canary: bool
    is_running: bool
    is_whole: bool
    is_examined: bool
    runs: tuple[RunSummary, ...]
    exit: int
    verdict: str
    score: Score
    effort: Effort
    flows: tuple[FlowSummary, ...]
    missions: tuple[MissionSummary, ...]
    failures: tuple[Failure, ...]
    mismatches: tuple[Mismatch, ...]
    gates: tuple[Gate, ...]
    missing: tuple[Missing, ...]
    damaged: tuple[Damaged, ...] = ()

    @property
    def blocked(self) -> tuple[Gate, ...]:
        return tuple(gate for gate in self.gates if gate.blocked)


def report_campaign(found: CampaignState, *, damage: Damage | None = None) -> CampaignReport:
    """What it comes to. `damage` is None where the evidence was not examined."""
    sums = sums_of(found.trials)
    flows = tuple(dict.fromkeys(result.trial.flow for result in found.trials))
    by_flow = {flow: Sum() for flow in flows}
    whole = Sum()
    for (_, flow), each in sums.items():
        by_flow[flow].merge(each)
    for each in by_flow.values():
        whole.merge(each)
    gates = gates_of(found)
    missing = tuple(_missing(found))
    code = exit_of(found, gates)
    made = found.contents.campaign
    return CampaignReport(
        campaign_id=found.campaign_id,
        spec_file=None if made is None else made.file or None,
        spec_digest=None if made is None else made.spec,
        plan_digest=found.plan.digest,
        selected=None if found.selected == SelectSpec() else found.selected,
        is_canary=found.plan.is_canary,
        is_running=found.is_running,
        is_whole=bool(found.trials) and not missing and not found.is_running,
        is_examined=damage is not None,
        runs=tuple(
            RunSummary(run_id=run.id, began_at_ms=run.began_at_ms, ended_at_ms=run.ended_at_ms, how=run.how)
            for run in found.contents.runs
        ),
        exit=code,
        verdict=WORDS[code],
        score=whole.score(),
        effort=effort_of(found),
        flows=tuple(FlowSummary(flow_id=flow, score=each.score()) for flow, each in by_flow.items()),
        missions=tuple(_missions(sums)),
        failures=tuple(_failures(found)),
        mismatches=tuple(_mismatches(found)),
        gates=gates,
        missing=missing,
        damaged=tuple(Damaged(attempt_id=name, findings=findings) for name, findings in (damage or {}).items()),
    )


def _missions(sums: Mapping[tuple[MissionId, FlowId], Sum]) -> Iterator[MissionSummary]:
    missions: dict[MissionId, dict[FlowId, MissionScore]] = {}
    for (mission, flow), each in sums.items():
        missions.setdefault(mission, {})[flow] = each.mission_score()
    for mission, flows in missions.items():
        rates = {score.rate for score in flows.values() if score.rate is not None}
        yield MissionSummary(mission_id=mission, differs=len(rates) > 1, flows=flows)


def _failures(found: CampaignState) -> Iterator[Failure]:
    for each in found.trials:
        if each.stands == FAILED and each.spoken is not None:
            yield Failure(
                attempt_id=each.spoken.id,
                run_id=each.spoken.run,
                mission_id=each.trial.mission,
                flow_id=each.trial.flow,
                why=why_failed(each.spoken),
            )


def why_failed(result: LedgerAttempt) -> str:
    """Its code, or what judged it."""
    if result.code is not None:
        return result.code
    if result.verified is False and result.is_expected is not False:
        return "the probes say no"
    return "not as expected" if result.is_expected is False else str(result.outcome or Outcome.UNKNOWN)


def _mismatches(found: CampaignState) -> Iterator[Mismatch]:
    for each in found.trials:
        said = each.spoken
        if each.stands in (None, INVALID) or said is None or said.claimed is None or said.verified is None:
            continue
        if said.claimed is not said.verified:
            yield Mismatch(attempt_id=said.id, claimed=said.claimed, verified=said.verified)


def _missing(found: CampaignState) -> Iterator[Missing]:
    for each in found.trials:
        if each.stands is None:
            yield Missing(
                trial=each.trial.id,
                mission_id=each.trial.mission,
                flow_id=each.trial.flow,
                repeat=each.trial.repeat,
                why=_why_missing(each.spoken, is_running=found.is_running),
                code=None if each.spoken is None else each.spoken.code,
            )


def _why_missing(last: LedgerAttempt | None, *, is_running: bool) -> str:
    match last:
        case None:
            return "not tried yet" if is_running else "never tried"
        case LedgerAttempt(state="running"):
            return "running" if is_running else "cut off"
        case LedgerAttempt(outcome=Outcome.CANCELLED):
            return "cancelled"
        case LedgerAttempt(state="sealed"):
            return "to be tried again"
        case _:
            return "cut off"


def effort_of(found: CampaignState) -> Effort:
    attempts = found.attempts
    tokens = [each.tokens for each in attempts if each.tokens is not None]
    usd = [each.usd for each in attempts if each.usd is not None]
    return Effort(
        attempts=len(attempts),
        not_counted=len(attempts) - sum(each.stands is not None for each in found.trials),
        tokens=sum(tokens),
        tokens_unknown=len(attempts) - len(tokens),
        usd=sum(usd) if usd else None,
        usd_unknown=len(attempts) - len(usd),
    )


def exit_of(found: CampaignState, gates: tuple[Gate, ...]) -> Exit:
    """The worst of what results and gates say, and infrastructure that kept trials from a result. All else that is
    missing is the coverage gate's matter.
    """
    said = {Exit.OK} if found.trials else {Exit.UNVERIFIED}
    for each, _ in count_alike(found.trials):
        judged = None if each.spoken is None else _judge(each.spoken)
        if judged is not None and (each.stands is not None or judged is Exit.INFRASTRUCTURE):
            said.add(Exit.EVIDENCE if each.stands == INVALID else judged)
    return worst(said | {gate.exit for gate in gates})


def _judge(attempt: LedgerAttempt) -> Exit:
    match attempt.state:
        case "sealed":
            bucket = None if attempt.code is None else bucket_of(attempt.code)
            outcome = attempt.outcome or Outcome.UNKNOWN
            return judge_result(outcome, bucket=bucket, verified=attempt.verified, met=attempt.is_expected)
        case "abandoned" if attempt.code != CUT_OFF:
            return Exit.INFRASTRUCTURE
        case _:
            return Exit.UNVERIFIED
