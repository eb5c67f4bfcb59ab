"""What a campaign must pass for its results to count. Pure; each gate says which missions it blocks, and why."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from proctor.errors import Exit
from proctor.evidence.tally import Tally
from proctor.ids import AttemptId, FlowId, MissionId
from proctor.report.score import FAILED, PASSED, UNVERIFIED, Told
from proctor.report.standing import CampaignCells, CellResult
from proctor.report.words import one_line, percent
from proctor.spec.running import GatesSpec, ToolsSpec, TraceProfile

_UNMEASURED = "it was sealed before this was measured"
_AGENTS = (PASSED, FAILED, UNVERIFIED)
"""How a result stands that says something of what the agent did."""


class Blocked(Told, frozen=True, kw_only=True):
    """What a gate does not let through; no mission where it is the campaign's matter."""

    mission_id: MissionId | None
    attempt_id: AttemptId | None = None
    why: str


class Gate(Told, frozen=True, kw_only=True):
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


def gates_of(found: CampaignCells) -> tuple[Gate, ...]:
    """Those that the campaign's plan asks for."""
    bound = {flow.id for flow in found.plan.flows if flow.tools != ToolsSpec()}
    return judge_gates(found.plan.gates, found.cells, bound=bound)


def judge_gates(gates: GatesSpec, cells: Sequence[CellResult], *, bound: Collection[FlowId]) -> tuple[Gate, ...]:
    """Every gate that was asked for; coverage always is. `bound` are the flows with a tool policy."""
    coverage = tuple(_coverage(gates.coverage, cells))
    asked: list[tuple[str, Iterable[Blocked]]] = [("coverage", coverage)]
    if gates.pair:
        # Of a mission that is still to be tried, as coverage asks, nothing can be said yet.
        untried = {cell.cell.mission for cell in cells if cell.stands is None} if coverage else set()
        asked.append(("pair", _pair([cell for cell in cells if cell.cell.mission not in untried])))
    if gates.trace is not TraceProfile.NONE:
        asked.append(("trace", _trace(gates.trace, cells)))
    if bound:
        asked.append(("tools", _tools([cell for cell in cells if cell.cell.flow in bound])))
    return tuple(Gate(name=name, blocked=tuple(blocked)) for name, blocked in asked)


def _coverage(least: float, cells: Sequence[CellResult]) -> Iterator[Blocked]:
    results = sum(cell.stands is not None for cell in cells)
    # Not a product: 0.56 × 25 is a little more than 14.
    if not cells or results / len(cells) < least:
        why = f"{results:,} of {len(cells):,} cells have a result, and {percent(least)} must"
        yield Blocked(mission_id=None, why=why)


def _pair(cells: Sequence[CellResult]) -> Iterator[Blocked]:
    flows = dict.fromkeys(cell.cell.flow for cell in cells)
    scored = Counter((cell.cell.mission, cell.cell.flow) for cell in cells if cell.stands in (PASSED, FAILED))
    for mission in dict.fromkeys(cell.cell.mission for cell in cells):
        counts = {flow: scored[mission, flow] for flow in flows}
        if len(set(counts.values())) > 1 or not any(counts.values()):
            told = ", ".join(f"{flow} {count}" for flow, count in counts.items())
            yield Blocked(mission_id=mission, why=f"scored results: {told}")


_SHOWS: dict[TraceProfile, tuple[str, Callable[[Tally], bool | None]]] = {
    TraceProfile.USED_TOOLS: ("no tool call", lambda tally: tally.tool_calls > 0),
    TraceProfile.CHANGED_FILES: ("no change in the workspace", lambda tally: tally.has_changed_files),
    TraceProfile.MCP: ("no MCP call", lambda tally: None if tally.mcp_calls is None else tally.mcp_calls > 0),
}


def _trace(profile: TraceProfile, cells: Sequence[CellResult]) -> Iterator[Blocked]:
    lacks, shows = _SHOWS[profile]
    for cell in cells:
        if cell.stands in _AGENTS and not (shown := None if cell.tally is None else shows(cell.tally)):
            why = f"its trace shows {lacks}" if shown is False else _UNMEASURED
            yield Blocked(mission_id=cell.cell.mission, attempt_id=_id(cell), why=why)


def _tools(cells: Sequence[CellResult]) -> Iterator[Blocked]:
    for cell in cells:
        broken = None if cell.tally is None else cell.tally.policy_violations
        if cell.stands in _AGENTS and broken != 0:
            why = _UNMEASURED if cell.tally is None or broken is None else _broken(broken, cell.tally.first_violations)
            yield Blocked(mission_id=cell.cell.mission, attempt_id=_id(cell), why=why)


def _broken(number: int, first: Sequence[str]) -> str:
    # Older tallies do not say which.
    told = "; ".join(one_line(each, limit=120) for each in first)
    more = f"; and {number - len(first):,} more" if 0 < len(first) < number else ""
    return f"tool calls against its policy: {number}" + (f" ({told}{more})" if told else "")


def _id(cell: CellResult) -> AttemptId | None:
    return None if cell.spoken is None else cell.spoken.id
