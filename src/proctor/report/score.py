"""What results come to: who passed, how surely, at what cost. Pure; only what is the agent's own is scored."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import msgspec

from proctor.errors import Bucket, bucket_of
from proctor.event.metrics import nearest_rank
from proctor.event.outcome import Outcome
from proctor.evidence.summary import AttemptSummary
from proctor.ledger.schema import LedgerAttempt
from proctor.report.stats import pass_all, pass_at, wilson

PASSED, FAILED, UNVERIFIED, INVALID = "passed", "failed", "unverified", "evidence"
"""How a result stands, beside the buckets of failures that are not the agent's."""

OF_THE_AGENT = frozenset({PASSED, FAILED, UNVERIFIED})
"""What is said of the agent. All else tells of the machine, the provider or the run."""

DRAWS = (1, 2, 3, 5, 10, 20, 50, 100)
"""The k of pass@k and pass^k, as far as there are that many repeats."""


class ReportStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Root of all that a campaign's report tells."""


class TokenSum(ReportStruct, frozen=True, kw_only=True):
    """Tokens on one word for them. `cached` is a part of `input`, and None where some did not say."""

    results: int
    input: int
    cached: int | None
    output: int


class MissionScore(ReportStruct, frozen=True, kw_only=True):
    """Of the trials of a mission in a flow.

    `scored` results passed or failed; `unproven` passed as the spec expects, and no probe judged them; of
    `unverified` ones nothing could be judged, and `buckets` hold those that failed by no fault of the agent's, and
    trials that such a failure has kept from a result until now. The rest is of all results; `unmeasured` of them have
    damaged evidence, and add nothing; `tool_ms` is None where none was measured. `tokens` and `usd` are what is
    known, beside how many results do not tell theirs.
    """

    trials: int
    results: int
    scored: int
    passed: int
    rate: float | None
    unproven: int
    unverified: int
    buckets: dict[str, int]
    tool_calls: int
    tool_failures: int
    tool_retries: int
    stuck: int
    tool_ms: int | None
    output_bytes: int
    unmeasured: int
    duration_p50_ms: int | None
    duration_p95_ms: int | None
    tokens: int
    tokens_unknown: int
    usd: float | None
    usd_unknown: int

    @property
    def infra(self) -> int:
        """How many results tell of the machine, the provider or the run; trials that were kept from one are
        not told.
        """
        return self.results - self.scored - self.unverified - self.buckets.get(INVALID, 0)


class Score(MissionScore, frozen=True, kw_only=True):
    """The same of a flow, or of all, with how sure it is.

    `pass_at` and `pass_all` are means over missions with that many scored results.
    """

    rate_low: float | None
    rate_high: float | None
    pass_at: dict[int, float]
    pass_all: dict[int, float]
    tokens_by_authority: dict[str, TokenSum]
    usd_per_pass: float | None


def standing(result: LedgerAttempt) -> str:
    """How it stands: PASSED, FAILED, UNVERIFIED, or the bucket of a failure that is not the agent's."""
    return standing_of(result.outcome, result.code, result.verified, result.is_expected)


def is_infra(stands: str) -> bool:
    """Whether `retry --only infra` means what stands so: it tells of the machine, the provider or the run. What is
    scored is never tried again by kind, since rates would be biased.
    """
    return stands not in OF_THE_AGENT


@lru_cache(maxsize=1024)
def standing_of(outcome: Outcome | None, code: str | None, verified: bool | None, met: bool | None) -> str:
    """How a result with that ending stands."""
    if met:
        return PASSED
    bucket = None if code is None else bucket_of(code)
    if bucket not in (None, Bucket.AGENT):
        return bucket.value
    if met is False or verified is False:
        return FAILED
    if outcome in (Outcome.COMPLETED, Outcome.FAILED) and verified:
        return PASSED
    return UNVERIFIED if outcome in (Outcome.COMPLETED, Outcome.UNKNOWN, None) else FAILED


@dataclass(slots=True)
class Sum:
    """Results added up, so that each is looked at once."""

    trials: int = 0
    stands: dict[str, int] = field(default_factory=dict)
    unproven: int = 0
    kept_from: dict[str, int] = field(default_factory=dict)  # why trials have no result yet, by bucket
    missions: list[tuple[int, int]] = field(default_factory=list)  # how many were scored, and how many of them passed
    calls: int = 0
    failures: int = 0
    retries: int = 0
    stuck: int = 0
    tool_ms: int | None = None  # until one was measured
    output_bytes: int = 0
    unmeasured: int = 0
    durations_ms: list[int] = field(default_factory=list)
    tokens: int = 0
    tokens_unknown: int = 0
    authorities: dict[str, list[int]] = field(default_factory=dict)  # results, input, cached, output, uncached
    usd: float = 0.0
    usd_unknown: int = 0

    def add(self, result: LedgerAttempt, summary: AttemptSummary, *, stands: str) -> None:
        """One result more, of a trial that is counted apart."""
        self.stands[stands] = self.stands.get(stands, 0) + 1
        if stands == INVALID:
            # What damaged evidence says of itself is not known.
            self.tokens_unknown += 1
            self.usd_unknown += 1
            self.unmeasured += 1
            return
        self.unproven += stands == PASSED and result.verified is None
        self.durations_ms.append(summary.duration_ms)
        if result.tokens is None:
            self.tokens_unknown += 1
        else:
            self.tokens += result.tokens
        if result.usd is None:
            self.usd_unknown += 1
        else:
            self.usd += result.usd
        self.calls += summary.tool_calls
        self.failures += summary.tool_failures
        self.retries += summary.tool_retries
        self.stuck += summary.is_stuck
        self._add_tool_ms(summary.tool_ms)
        self.output_bytes += summary.tool_output_bytes
        tokens = summary.tokens
        if tokens is not None and summary.tokens_authority is not None:
            counts = self.authorities.setdefault(summary.tokens_authority, [0, 0, 0, 0, 0])
            counts[0] += 1
            counts[1] += tokens.input
            counts[2] += tokens.cached_input or 0
            counts[3] += tokens.output
            counts[4] += tokens.cached_input is None

    def _add_tool_ms(self, more: int | None) -> None:
        if more is not None:
            self.tool_ms = more + (self.tool_ms or 0)

    def keep_from(self, last: LedgerAttempt) -> None:
        """A trial that is to be tried again: what its last attempt failed by is shown, and counts for nothing else."""
        if is_infra(bucket := standing(last)):
            self.kept_from[bucket] = self.kept_from.get(bucket, 0) + 1

    def merge(self, other: "Sum") -> None:
        """Another's trials too; it keeps its own."""
        self.trials += other.trials
        for bucket, number in other.kept_from.items():
            self.kept_from[bucket] = self.kept_from.get(bucket, 0) + number
        for stands, number in other.stands.items():
            self.stands[stands] = self.stands.get(stands, 0) + number
        self.missions += other.missions
        self.unproven += other.unproven
        self.calls += other.calls
        self.failures += other.failures
        self.retries += other.retries
        self.stuck += other.stuck
        self._add_tool_ms(other.tool_ms)
        self.output_bytes += other.output_bytes
        self.unmeasured += other.unmeasured
        self.durations_ms += other.durations_ms
        self.tokens += other.tokens
        self.tokens_unknown += other.tokens_unknown
        self.usd += other.usd
        self.usd_unknown += other.usd_unknown
        for authority, counts in other.authorities.items():
            before = self.authorities.get(authority, (0, 0, 0, 0, 0))
            self.authorities[authority] = [one + more for one, more in zip(before, counts, strict=True)]

    @property
    def scored(self) -> int:
        return self.stands.get(PASSED, 0) + self.stands.get(FAILED, 0)

    def close_mission(self) -> None:
        """All repeats of a mission have been added."""
        self.missions.append((self.scored, self.stands.get(PASSED, 0)))

    def mission_score(self) -> MissionScore:
        scored, passed, results = self.scored, self.stands.get(PASSED, 0), sum(self.stands.values())
        durations = sorted(self.durations_ms)
        return MissionScore(
            trials=self.trials,
            results=results,
            scored=scored,
            passed=passed,
            rate=passed / scored if scored else None,
            unproven=self.unproven,
            unverified=self.stands.get(UNVERIFIED, 0),
            buckets=self._buckets(),
            tool_calls=self.calls,
            tool_failures=self.failures,
            tool_retries=self.retries,
            stuck=self.stuck,
            tool_ms=self.tool_ms,
            output_bytes=self.output_bytes,
            unmeasured=self.unmeasured,
            duration_p50_ms=nearest_rank(durations, 50),
            duration_p95_ms=nearest_rank(durations, 95),
            tokens=self.tokens,
            tokens_unknown=self.tokens_unknown,
            usd=self.usd if self.usd_unknown < results else None,
            usd_unknown=self.usd_unknown,
        )

    def _buckets(self) -> dict[str, int]:
        counts = {name: number for name, number in self.stands.items() if is_infra(name)}
        for name, number in self.kept_from.items():
            counts[name] = counts.get(name, 0) + number
        return counts

    def score(self) -> Score:
        counted = self.mission_score()
        low, high = wilson(counted.passed, counted.scored) or (None, None)
        # Of a part of the cost it would be too little, whatever it came to.
        is_known = bool(counted.passed) and not self.usd_unknown
        return Score(
            **msgspec.structs.asdict(counted),
            rate_low=low,
            rate_high=high,
            pass_at=_drawn(self.missions, pass_at),
            pass_all=_drawn(self.missions, pass_all),
            tokens_by_authority={name: _tokens(counts) for name, counts in sorted(self.authorities.items())},
            usd_per_pass=self.usd / counted.passed if is_known else None,
        )


class _Estimate(Protocol):
    def __call__(self, k: int, /, *, passed: int, tries: int) -> float | None: ...


def _drawn(missions: Sequence[tuple[int, int]], estimate: _Estimate) -> dict[int, float]:
    """For each k the mean over the missions that were tried so often."""
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
