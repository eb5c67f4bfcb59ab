"""Gates: conditions that a campaign must meet for its results to count. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from proctor.errors import Exit
from proctor.evidence.artifacts import Judged, Part
from proctor.evidence.summary import SCORED, AttemptSummary
from proctor.ids import AttemptId, MissionId
from proctor.report.campaign_state import CampaignState, TrialResult
from proctor.report.classify import OF_THE_AGENT
from proctor.report.format_values import one_line, percent
from proctor.spec.campaign_options import Requirement, ToolsSpec, TraceProfile


class Blocked(Part, frozen=True, kw_only=True):
    """One thing that a gate blocks."""

    mission_id: MissionId | None
    """The mission; null if the gate blocks the campaign as a whole."""
    attempt_id: AttemptId | None = None
    """The attempt; null if the gate blocks more than one."""
    why: str
    """The reason."""
    is_unknown: bool = False
    """Whether this could not be judged, because the runtime cannot see tool calls."""


class Gate(Part, frozen=True, kw_only=True):
    """One gate of the campaign. It is open if it blocks nothing."""

    name: str
    """`coverage`, `require`, `pair`, `trace` or `tools`."""
    blocked: tuple[Blocked, ...]
    """What it blocks."""

    @property
    def exit(self) -> Exit:
        """Exit code: missing results may still come, and what is unverified or unknown is no judgement."""
        if not self.blocked:
            return Exit.OK
        is_open = self.name in ("coverage", "require") or all(each.is_unknown for each in self.blocked)
        return Exit.UNVERIFIED if is_open else Exit.JUDGED_NO

    def lines(self) -> list[str]:
        """Return one line for each thing that it blocks."""
        return [f"{each.attempt_id or each.mission_id or 'campaign'}: {each.why}" for each in self.blocked]


def gates_of(state: CampaignState) -> tuple[Gate, ...]:
    """Judge every gate of the campaign's plan that is set; coverage always is. None without a plan."""
    if state.plan is None:
        return ()
    gates, bound = state.plan.gates, {flow.id for flow in state.plan.flows if flow.tools != ToolsSpec()}
    coverage = tuple(_coverage(gates.coverage, state))
    asked: list[tuple[str, Iterable[Blocked]]] = [("coverage", coverage)]
    if gates.require is not Requirement.NONE:
        asked.append(("require", _require(gates.require, state)))
    if gates.pair:
        # Missions with trials that coverage still waits for cannot be judged yet.
        untried = {trial.mission for trial in state.trials if trial.result is None} if coverage else set()
        asked.append(("pair", _pair([trial for trial in state.trials if trial.mission not in untried])))
    if gates.trace is not TraceProfile.NONE:
        asked.append(("trace", _trace(gates.trace, state.trials)))
    if bound:
        asked.append(("tools", _tools([trial for trial in state.trials if trial.flow in bound])))
    return tuple(Gate(name=name, blocked=tuple(blocked)) for name, blocked in asked)


def _coverage(least: float, state: CampaignState) -> Iterator[Blocked]:
    trials, results = state.count(), state.count(lambda trial: trial.result is not None)
    # Not a product: 0.56 × 25 is a little more than 14.
    if not trials or results / trials < least:
        why = f"{results:,} of {trials:,} trials have a result, and {percent(least)} must"
        yield Blocked(mission_id=None, why=why)


def _require(least: Requirement, state: CampaignState) -> Iterator[Blocked]:
    """Yield the results that are not verified as required. Trials without a result are up to coverage."""
    for trial in state.trials:
        summary = _summary(trial)
        is_outside = summary is not None and summary.judged is Judged.OUTSIDE
        if summary is None or (summary.verified and (is_outside or least is Requirement.VERIFIED)):
            continue
        why = "not verified"
        if not summary.has_probes:
            why = "unverified: the mission has no probe"
        elif summary.verified:
            why = "verified only inside the product's own processes"
        yield Blocked(mission_id=trial.mission, attempt_id=_id(trial), why=why)


def _pair(trials: Sequence[TrialResult]) -> Iterator[Blocked]:
    flows = dict.fromkeys(trial.flow for trial in trials)
    scored = Counter((trial.mission, trial.flow) for trial in trials if trial.result in SCORED)
    for mission in dict.fromkeys(trial.mission for trial in trials):
        counts = {flow: scored[mission, flow] for flow in flows}
        if len(set(counts.values())) > 1 or not any(counts.values()):
            by_flow = ", ".join(f"{flow} {count}" for flow, count in counts.items())
            yield Blocked(mission_id=mission, why=f"scored results: {by_flow}")


_SHOWS: dict[TraceProfile, tuple[str, Callable[[AttemptSummary], bool | None]]] = {
    TraceProfile.USED_TOOLS: ("no tool call", lambda summary: _is_some(summary.tool_calls)),
    TraceProfile.CHANGED_FILES: ("no change in the workspace", lambda summary: summary.has_changed_files),
    TraceProfile.MCP: ("no MCP call", lambda summary: _is_some(summary.mcp_calls)),
}
_UNSEEN = "its runtime cannot see tool calls, so this is unknown"


def _is_some(number: int | None) -> bool | None:
    return None if number is None else number > 0


def _trace(profile: TraceProfile, trials: Sequence[TrialResult]) -> Iterator[Blocked]:
    lacks, shows = _SHOWS[profile]
    for trial in trials:
        if (summary := _summary(trial)) is not None and not (shown := shows(summary)):
            is_unknown = shown is None
            why = _UNSEEN if is_unknown else f"its trace shows {lacks}"
            yield Blocked(mission_id=trial.mission, attempt_id=_id(trial), why=why, is_unknown=is_unknown)


def _tools(trials: Sequence[TrialResult]) -> Iterator[Blocked]:
    for trial in trials:
        summary = _summary(trial)
        if summary is not None and summary.policy_violations != 0:
            number = summary.policy_violations
            why = _UNSEEN if number is None else _broken(number, summary.first_violations)
            is_unknown = number is None
            yield Blocked(mission_id=trial.mission, attempt_id=_id(trial), why=why, is_unknown=is_unknown)


def _broken(number: int, first: Sequence[str]) -> str:
    shown = "; ".join(one_line(each, limit=120) for each in first)
    more = f"; and {number - len(first):,} more" if len(first) < number else ""
    return f"tool calls against its policy: {number} ({shown}{more})"


def _summary(trial: TrialResult) -> AttemptSummary | None:
    """Return the summary of a result that says something about the agent."""
    counted = trial.measured
    return None if counted is None or trial.result not in OF_THE_AGENT else counted.summary


def _id(trial: TrialResult) -> AttemptId | None:
    return None if trial.counted_attempt is None else trial.counted_attempt.attempt_id
