"""What a campaign must pass for its results to count. Pure; each gate says which missions it blocks, and why."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from proctor.errors import Exit
from proctor.evidence.summary import AttemptSummary
from proctor.ids import AttemptId, FlowId, MissionId
from proctor.report.campaign_state import CampaignState, TrialResult
from proctor.report.format_values import one_line, percent
from proctor.report.score import FAILED, PASSED, UNVERIFIED, ReportStruct
from proctor.spec.campaign_options import GatesSpec, ToolsSpec, TraceProfile

_AGENTS = (PASSED, FAILED, UNVERIFIED)
"""How a result stands that says something of what the agent did."""


class Blocked(ReportStruct, frozen=True, kw_only=True):
    """What a gate does not let through; no mission where it is the campaign's matter."""

    mission_id: MissionId | None
    attempt_id: AttemptId | None = None
    why: str


class Gate(ReportStruct, frozen=True, kw_only=True):
    """One gate that was asked for. It is open where it blocks nothing."""

    name: str
    blocked: tuple[Blocked, ...]

    @property
    def exit(self) -> Exit:
        """What it says of the whole: what is not covered may still come, the rest is a judgement."""
        if not self.blocked:
            return Exit.OK
        return Exit.UNVERIFIED if self.name == "coverage" else Exit.JUDGED_NO

    def lines(self) -> list[str]:
        """What it blocks, and why."""
        return [f"{each.attempt_id or each.mission_id or 'campaign'}: {each.why}" for each in self.blocked]


def gates_of(found: CampaignState) -> tuple[Gate, ...]:
    """Those that the campaign's plan asks for."""
    bound = {flow.id for flow in found.plan.flows if flow.tools != ToolsSpec()}
    return judge_gates(found.plan.gates, found.trials, bound=bound)


def judge_gates(gates: GatesSpec, trials: Sequence[TrialResult], *, bound: Collection[FlowId]) -> tuple[Gate, ...]:
    """Every gate that was asked for; coverage always is. `bound` are the flows with a tool policy."""
    coverage = tuple(_coverage(gates.coverage, trials))
    asked: list[tuple[str, Iterable[Blocked]]] = [("coverage", coverage)]
    if gates.pair:
        # Of a mission that is still to be tried, as coverage asks, nothing can be said yet.
        untried = {trial.trial.mission for trial in trials if trial.stands is None} if coverage else set()
        asked.append(("pair", _pair([trial for trial in trials if trial.trial.mission not in untried])))
    if gates.trace is not TraceProfile.NONE:
        asked.append(("trace", _trace(gates.trace, trials)))
    if bound:
        asked.append(("tools", _tools([trial for trial in trials if trial.trial.flow in bound])))
    return tuple(Gate(name=name, blocked=tuple(blocked)) for name, blocked in asked)


def _coverage(least: float, trials: Sequence[TrialResult]) -> Iterator[Blocked]:
    results = sum(trial.stands is not None for trial in trials)
    # Not a product: 0.56 × 25 is a little more than 14.
    if not trials or results / len(trials) < least:
        why = f"{results:,} of {len(trials):,} trials have a result, and {percent(least)} must"
        yield Blocked(mission_id=None, why=why)


def _pair(trials: Sequence[TrialResult]) -> Iterator[Blocked]:
    flows = dict.fromkeys(trial.trial.flow for trial in trials)
    scored = Counter((trial.trial.mission, trial.trial.flow) for trial in trials if trial.stands in (PASSED, FAILED))
    for mission in dict.fromkeys(trial.trial.mission for trial in trials):
        counts = {flow: scored[mission, flow] for flow in flows}
        if len(set(counts.values())) > 1 or not any(counts.values()):
            told = ", ".join(f"{flow} {count}" for flow, count in counts.items())
            yield Blocked(mission_id=mission, why=f"scored results: {told}")


_SHOWS: dict[TraceProfile, tuple[str, Callable[[AttemptSummary], bool]]] = {
    TraceProfile.USED_TOOLS: ("no tool call", lambda summary: summary.tool_calls > 0),
    TraceProfile.CHANGED_FILES: ("no change in the workspace", lambda summary: summary.has_changed_files),
    TraceProfile.MCP: ("no MCP call", lambda summary: summary.mcp_calls > 0),
}


def _trace(profile: TraceProfile, trials: Sequence[TrialResult]) -> Iterator[Blocked]:
    lacks, shows = _SHOWS[profile]
    for trial in trials:
        if (summary := _summary(trial)) is not None and not shows(summary):
            yield Blocked(mission_id=trial.trial.mission, attempt_id=_id(trial), why=f"its trace shows {lacks}")


def _tools(trials: Sequence[TrialResult]) -> Iterator[Blocked]:
    for trial in trials:
        if (summary := _summary(trial)) is not None and summary.policy_violations:
            why = _broken(summary.policy_violations, summary.first_violations)
            yield Blocked(mission_id=trial.trial.mission, attempt_id=_id(trial), why=why)


def _broken(number: int, first: Sequence[str]) -> str:
    told = "; ".join(one_line(each, limit=120) for each in first)
    more = f"; and {number - len(first):,} more" if len(first) < number else ""
    return f"tool calls against its policy: {number} ({told}{more})"


def _summary(trial: TrialResult) -> AttemptSummary | None:
    """Of a result that says something about what the agent did."""
    return None if trial.spoken is None or trial.stands not in _AGENTS else trial.spoken.summary


def _id(trial: TrialResult) -> AttemptId | None:
    return None if trial.spoken is None else trial.spoken.id
