"""Scores of results: what passed, how certain the rate is, and what it cost. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from proctor.event.metrics import nearest_rank
from proctor.event.model import Tokens
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import Part
from proctor.evidence.summary import PASSED, SCORED, UNKNOWN, AttemptSummary
from proctor.ids import FlowId, MissionId
from proctor.report.classify import INVALID, OF_THE_AGENT, classify, is_infra
from proctor.report.row import AttemptRow
from proctor.report.stats import clustered_interval, pass_all, pass_at, wilson

if TYPE_CHECKING:
    from proctor.report.campaign_state import TrialResult

DRAWS: Final = (1, 2, 3, 5, 10, 20, 50, 100)
"""The k of pass@k and pass^k, as far as there are that many repeats."""

WILSON: Final = "Wilson"
CLUSTERED: Final = "clustered by mission"
"""The two ways to compute the interval of a rate."""


class TokenSum(Part, frozen=True, kw_only=True):
    """Tokens of the results whose counts come from one source."""

    results: int
    """Number of results."""
    input: int
    """Input tokens, cached ones included."""
    cached: int | None
    """Cached input tokens; null if some results do not report them."""
    output: int
    """Output tokens."""


class PassCount(Part, frozen=True, kw_only=True):
    """How many results passed."""

    scored: int
    """Results that passed or failed."""
    passed: int
    """Results that passed."""
    rate: float | None
    """`passed` divided by `scored`; null without a scored result."""
    first_passed: int | None = None
    """Results that passed before any was replaced on request; null if none was replaced."""


class PassRate(PassCount, frozen=True, kw_only=True):
    """How many results passed, how certain that is, and what a pass cost."""

    rate_low: float | None
    """Lower end of the 95 % interval of the rate."""
    rate_high: float | None
    """Upper end of the 95 % interval of the rate."""
    interval_method: str | None
    """How the interval was computed: `Wilson`, or `clustered by mission` if a mission has several scored results."""
    pass_at: dict[int, float]
    """pass@k by k: mean probability over missions that at least one of k attempts passes."""
    pass_all: dict[int, float]
    """pass^k by k: mean probability over missions that all of k attempts pass."""
    usd_per_pass: float | None
    """Cost of these results divided by the passes, in US dollars; null if a cost is unknown or nothing passed."""


class MissionScore(Part, frozen=True, kw_only=True):
    """The results of one mission in one flow."""

    trials: int
    """Trials in the plan."""
    results: int
    """Trials with a result."""
    verified: PassCount
    """Results of missions with probes. A pass was verified by the probes."""
    unverified: PassCount
    """Results of missions without probes. A pass has the answer, trace and workspace that the mission states."""
    expected: int
    """Results that came out as expected."""
    unexpected: int
    """Results that did not come out as expected, for reasons that lie with the agent."""
    unknown: int
    """Results without a verdict: no probe could judge them, or there are none and nothing is stated."""
    unjudged: int
    """Those of `unknown` whose mission has probes: they could not judge the result."""
    continued: int
    """Results whose attempt continues others after a wait, so that they are not comparable with uninterrupted ones.
    Their usage, cost and duration are those of all these attempts."""
    buckets: dict[str, int]
    """Failures that are not the agent's, by bucket: results, and trials that such a failure kept from a result."""
    tool_calls: int
    """Known tool calls of all results."""
    tool_calls_unknown: int
    """Results whose tool calls are unknown, because the runtime cannot see them."""
    tool_failures: int
    """Tool calls that failed."""
    tool_retries: int
    """Tool calls equal to an earlier one that failed."""
    stuck: int
    """Results whose agent repeated a few calls without progress."""
    degraded: int
    """Results to which the flow's context engine did not apply, or not in full."""
    tool_ms: int | None
    """Time spent in tool calls, in milliseconds; null if it was never measured."""
    output_bytes: int
    """Bytes that tool calls printed."""
    unmeasured: int
    """Results with invalid or unreadable evidence, which add nothing to the sums."""
    duration_p50_ms: int | None
    """Median duration of a result, in milliseconds."""
    duration_p95_ms: int | None
    """95th percentile of the duration, in milliseconds."""
    tokens: int
    """Known tokens of all results."""
    tokens_unknown: int
    """Results whose tokens are unknown."""
    reasoning_tokens: int
    """Known reasoning tokens of all results, a part of their output tokens."""
    reasoning_unknown: int
    """Results whose reasoning tokens are unknown."""
    usd: float | None
    """Known cost of all results, in US dollars; null if none is known."""
    usd_unknown: int
    """Results whose cost is unknown."""

    @property
    def infra(self) -> int:
        """Results that are about the machine, the provider or the run."""
        scored = self.verified.scored + self.unverified.scored
        return self.results - scored - self.unknown - self.buckets.get(INVALID, 0)

    @property
    def passes(self) -> PassCount:
        """The count of the mission: all its results have probes, or none."""
        return self.verified if self.verified.scored else self.unverified


class Score(MissionScore, frozen=True, kw_only=True):
    """The results of a flow, or of the whole campaign."""

    verified: PassRate
    """Results of missions with probes. A pass was verified by the probes."""
    unverified: PassRate
    """Results of missions without probes. A pass has the answer, trace and workspace that the mission states."""
    tokens_by_authority: dict[str, TokenSum]
    """Tokens by the source of the counts."""


@dataclass(slots=True)
class PassSum:
    """Results of missions with probes, or of those without, added up."""

    scored: int = 0
    passed: int = 0
    first_passed: int = 0
    replaced: int = 0
    missions: list[tuple[MissionId, int, int]] = field(default_factory=list)  # scored and passed, by mission and flow
    usd: float = 0.0
    usd_unknown: int = 0

    def add(self, results: Sequence[tuple["TrialResult", AttemptRow]]) -> None:
        """Add results whose evidence is known, with the attempt that counts."""
        numbers = Counter([each.result for each, _ in results])
        replaced = [each for each, _ in results if each.first_result is not None]
        first_passed = [each.first_result == PASSED for each in replaced].count(True)
        self.scored += sum([numbers[result] for result in SCORED])
        self.passed += numbers[PASSED]
        self.first_passed += numbers[PASSED] - [each.result == PASSED for each in replaced].count(True) + first_passed
        self.replaced += len(replaced)
        known_usd = [row.usd for _, row in results if row.usd is not None]
        self.usd += sum(known_usd)
        self.usd_unknown += len(results) - len(known_usd)

    def merge(self, other: "PassSum") -> None:
        self.scored += other.scored
        self.passed += other.passed
        self.first_passed += other.first_passed
        self.replaced += other.replaced
        self.missions += other.missions
        self.usd += other.usd
        self.usd_unknown += other.usd_unknown

    def count(self) -> PassCount:
        return PassCount(scored=self.scored, passed=self.passed, rate=self._rate(), first_passed=self._first_passed())

    def rate(self) -> PassRate:
        repeats = [(scored, passed) for _, scored, passed in self.missions]
        low, high, method = self._interval()
        return PassRate(
            scored=self.scored,
            passed=self.passed,
            rate=self._rate(),
            first_passed=self._first_passed(),
            rate_low=low,
            rate_high=high,
            interval_method=method,
            pass_at=_drawn(repeats, pass_at),
            pass_all=_drawn(repeats, pass_all),
            # A part of the cost would be too little.
            usd_per_pass=self.usd / self.passed if self.passed and not self.usd_unknown else None,
        )

    def _first_passed(self) -> int | None:
        return self.first_passed if self.replaced else None

    def _rate(self) -> float | None:
        return self.passed / self.scored if self.scored else None

    def _interval(self) -> tuple[float, float, str] | tuple[None, None, None]:
        """Return the ends of the interval and its method. Flows repeat a mission as repeats do."""
        by_mission: dict[MissionId, tuple[int, int]] = {}
        for mission, scored, passed in self.missions:
            before = by_mission.get(mission, (0, 0))
            by_mission[mission] = (before[0] + scored, before[1] + passed)
        if len(by_mission) == self.scored:
            interval, method = wilson(self.passed, self.scored), WILSON
        else:
            interval, method = clustered_interval(by_mission.values()), CLUSTERED
        return (None, None, None) if interval is None else (*interval, method)


@dataclass(slots=True)
class Sum:
    """Results added up, so that each is visited once."""

    trials: int = 0
    verified: PassSum = field(default_factory=PassSum)
    unverified: PassSum = field(default_factory=PassSum)
    results: dict[str, int] = field(default_factory=dict)
    expected: int = 0
    unexpected: int = 0
    unjudged: int = 0
    continued: int = 0
    delayed: dict[str, int] = field(default_factory=dict)  # trials that a failure kept from a result, by bucket
    calls: int = 0
    calls_unknown: int = 0
    failures: int = 0
    retries: int = 0
    stuck: int = 0
    degraded: int = 0
    tool_ms: int | None = None  # until one was measured
    output_bytes: int = 0
    unmeasured: int = 0
    durations_ms: list[int] = field(default_factory=list)
    tokens: int = 0
    tokens_unknown: int = 0
    reasoning_tokens: int = 0
    reasoning_unknown: int = 0
    authorities: dict[str, list[int]] = field(default_factory=dict)  # results, input, cached, output, uncached
    usd: float = 0.0
    usd_unknown: int = 0

    def add(self, trials: Iterable["TrialResult"]) -> None:
        """Add all trials of a mission and flow, one measure after the other."""
        measured: list[tuple[TrialResult, AttemptRow, AttemptSummary]] = []
        for each in trials:
            self.trials += 1
            row, result = each.measured, each.result
            if row is None:
                continue
            if result is None:
                self._delay(row)
            elif result == INVALID or row.summary is None:
                self._add_unmeasured(row, result)
            else:
                measured.append((each, row, row.summary))
        for name, number in Counter([each.result or UNKNOWN for each, _, _ in measured]).items():
            self.results[name] = self.results.get(name, 0) + number
        self.verified.add([(each, row) for each, row, summary in measured if summary.required_probes])
        self.unverified.add([(each, row) for each, row, summary in measured if not summary.required_probes])
        summaries = [summary for _, _, summary in measured]
        expected = [each.is_expected for each in summaries if each.result in OF_THE_AGENT]
        self.expected += expected.count(True)
        self.unexpected += expected.count(False)
        self.unjudged += sum([each.is_unjudged for each in summaries if each.required_probes])
        self.degraded += sum([each.degraded is not None for each in summaries])
        self.continued += sum([each.continues is not None for each in summaries])
        self.durations_ms += [each.duration_ms for each in summaries]
        self._add_usage([row for _, row, _ in measured])
        self._add_tools(summaries)
        self._add_tokens(summaries)

    def _add_unmeasured(self, row: AttemptRow, result: str) -> None:
        """Add a result with invalid evidence: what it says is not known."""
        self.results[result] = self.results.get(result, 0) + 1
        self.tokens_unknown += 1
        self.reasoning_unknown += 1
        self.usd_unknown += 1
        self.unmeasured += 1
        # Both if it is unknown whether it has probes.
        for part, has_probes in ((self.verified, True), (self.unverified, False)):
            part.usd_unknown += row.summary is None or row.summary.has_probes is has_probes

    def _add_usage(self, rows: Sequence[AttemptRow]) -> None:
        tokens = [row.tokens for row in rows if row.tokens is not None]
        usd = [row.usd for row in rows if row.usd is not None]
        self.tokens += sum(tokens)
        self.tokens_unknown += len(rows) - len(tokens)
        self.usd += sum(usd)
        self.usd_unknown += len(rows) - len(usd)

    def _add_tools(self, summaries: Sequence[AttemptSummary]) -> None:
        calls = [each.tool_calls for each in summaries if each.tool_calls is not None]
        tool_ms = [each.tool_ms for each in summaries if each.tool_ms is not None]
        self.calls += sum(calls)
        self.calls_unknown += len(summaries) - len(calls)
        self.failures += sum([each.tool_failures or 0 for each in summaries])
        self.retries += sum([each.tool_retries or 0 for each in summaries])
        self.stuck += [each.is_stuck for each in summaries].count(True)
        self.tool_ms = _plus(self.tool_ms, sum(tool_ms) if tool_ms else None)
        self.output_bytes += sum([each.tool_output_bytes or 0 for each in summaries])

    def _add_tokens(self, summaries: Sequence[AttemptSummary]) -> None:
        known = [(each.tokens_authority, each.tokens) for each in summaries if each.tokens is not None]
        reasoning = [tokens.reasoning_output for _, tokens in known if tokens.reasoning_output is not None]
        self.reasoning_tokens += sum(reasoning)
        self.reasoning_unknown += len(summaries) - len(reasoning)
        by_authority: dict[str, list[Tokens]] = {}
        for authority, tokens in known:
            if authority is not None:
                by_authority.setdefault(authority, []).append(tokens)
        for name, each in by_authority.items():
            cached = [tokens.cached_input for tokens in each if tokens.cached_input is not None]
            input_, output = sum([tokens.input for tokens in each]), sum([tokens.output for tokens in each])
            more = (len(each), input_, sum(cached), output, len(each) - len(cached))
            before = self.authorities.get(name, (0, 0, 0, 0, 0))
            self.authorities[name] = [one + other for one, other in zip(before, more, strict=True)]

    def _delay(self, last: AttemptRow) -> None:
        """Count a trial that will be retried by what its last attempt failed by."""
        if last.state != "sealed" or last.outcome is Outcome.CANCELLED:
            return
        if is_infra(bucket := classify(last)) and bucket != INVALID:
            self.delayed[bucket] = self.delayed.get(bucket, 0) + 1

    def close_mission(self, mission: MissionId) -> None:
        """Note that all repeats of a mission have been added."""
        for each in (self.verified, self.unverified):
            if each.scored:
                each.missions.append((mission, each.scored, each.passed))

    def merge(self, other: "Sum") -> None:
        """Add the trials of another sum, which stays as it is."""
        self.trials += other.trials
        self.verified.merge(other.verified)
        self.unverified.merge(other.unverified)
        self.expected += other.expected
        self.unexpected += other.unexpected
        self.unjudged += other.unjudged
        self.continued += other.continued
        for mine, others in ((self.results, other.results), (self.delayed, other.delayed)):
            for name, number in others.items():
                mine[name] = mine.get(name, 0) + number
        self.calls += other.calls
        self.calls_unknown += other.calls_unknown
        self.failures += other.failures
        self.retries += other.retries
        self.stuck += other.stuck
        self.degraded += other.degraded
        self.tool_ms = _plus(self.tool_ms, other.tool_ms)
        self.output_bytes += other.output_bytes
        self.unmeasured += other.unmeasured
        self.durations_ms += other.durations_ms
        self.tokens += other.tokens
        self.tokens_unknown += other.tokens_unknown
        self.reasoning_tokens += other.reasoning_tokens
        self.reasoning_unknown += other.reasoning_unknown
        self.usd += other.usd
        self.usd_unknown += other.usd_unknown
        for authority, counts in other.authorities.items():
            before = self.authorities.get(authority, (0, 0, 0, 0, 0))
            self.authorities[authority] = [one + more for one, more in zip(before, counts, strict=True)]

    def mission_score(self) -> MissionScore:
        results, durations = sum(self.results.values()), sorted(self.durations_ms)
        return MissionScore(
            trials=self.trials,
            results=results,
            verified=self.verified.count(),
            unverified=self.unverified.count(),
            expected=self.expected,
            unexpected=self.unexpected,
            unknown=self.results.get(UNKNOWN, 0),
            unjudged=self.unjudged,
            continued=self.continued,
            buckets=self._buckets(),
            tool_calls=self.calls,
            tool_calls_unknown=self.calls_unknown,
            tool_failures=self.failures,
            tool_retries=self.retries,
            stuck=self.stuck,
            degraded=self.degraded,
            tool_ms=self.tool_ms,
            output_bytes=self.output_bytes,
            unmeasured=self.unmeasured,
            duration_p50_ms=nearest_rank(durations, 50),
            duration_p95_ms=nearest_rank(durations, 95),
            tokens=self.tokens,
            tokens_unknown=self.tokens_unknown,
            reasoning_tokens=self.reasoning_tokens,
            reasoning_unknown=self.reasoning_unknown,
            usd=self.usd if self.usd_unknown < results else None,
            usd_unknown=self.usd_unknown,
        )

    def _buckets(self) -> dict[str, int]:
        counts = {name: number for name, number in self.results.items() if is_infra(name)}
        for name, number in self.delayed.items():
            counts[name] = counts.get(name, 0) + number
        return counts

    def score(self) -> Score:
        fields = msgspec.structs.asdict(self.mission_score())
        return Score(
            **{**fields, "verified": self.verified.rate(), "unverified": self.unverified.rate()},
            tokens_by_authority={name: _tokens(counts) for name, counts in sorted(self.authorities.items())},
        )


def sum_results(trials: Iterable["TrialResult"]) -> dict[tuple[MissionId, FlowId], Sum]:
    """Add up trials by mission and flow. Trials whose mission is unknown are left out: their evidence is invalid."""
    groups: dict[tuple[MissionId, FlowId], list[TrialResult]] = {}
    for each in trials:
        if each.mission is None or each.flow is None:
            continue
        if (group := groups.get((each.mission, each.flow))) is None:
            group = groups[each.mission, each.flow] = []
        group.append(each)
    sums: dict[tuple[MissionId, FlowId], Sum] = {}
    for (mission, flow), group in groups.items():
        sum_ = sums[mission, flow] = Sum()
        sum_.add(group)
        sum_.close_mission(mission)
    return sums


def merge_sums(sums: Iterable[Sum]) -> Sum:
    """Return the sum of sums."""
    total = Sum()
    for each in sums:
        total.merge(each)
    return total


class _Estimate(Protocol):
    def __call__(self, k: int, /, *, passed: int, tries: int) -> float | None: ...


def _drawn(missions: Sequence[tuple[int, int]], estimate: _Estimate) -> dict[int, float]:
    """Return for each k the mean over the missions with at least k scored results."""
    # Few missions come out differently, and many alike.
    alike = Counter(missions) if len(missions) > 1 else dict.fromkeys(missions, 1)
    found: dict[int, float] = {}
    for k in DRAWS:
        known = {each: times for each, times in alike.items() if each[0] >= k}
        if not known:
            break
        shares = (times * (estimate(k, passed=passed, tries=tries) or 0) for (tries, passed), times in known.items())
        found[k] = math.fsum(shares) / sum(known.values())
    return found


def _tokens(counts: Sequence[int]) -> TokenSum:
    results, given, cached, output, uncached = counts
    return TokenSum(results=results, input=given, cached=None if uncached else cached, output=output)


def _plus(one: int | None, other: int | None) -> int | None:
    """Add what is known.

    >>> _plus(None, None), _plus(None, 2), _plus(1, 2)
    (None, 2, 3)
    """
    return one if other is None else other + (one or 0)
