"""Comparison of two flows or two campaigns on the same missions, in pairs, with significance tests. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from proctor.errors import Exit
from proctor.evidence.artifacts import Artifact, Part
from proctor.ids import CampaignId, FlowId, MissionId
from proctor.report.campaign_state import TrialResult
from proctor.report.score import PASSED, SCORED, Score, merge_sums, sum_results
from proctor.report.stats import SIGNIFICANT, paired, sign_test

Key = tuple[FlowId | None, MissionId | None, int | None]
"""What makes two trials a pair: mission and repeat, and the flow if whole campaigns are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSelection:
    """One side of a comparison, as it was selected."""

    name: str
    campaign_id: CampaignId
    flow_id: FlowId | None
    trials: Mapping[Key, TrialResult]


class Side(Part, frozen=True, kw_only=True):
    """One side of a comparison."""

    name: str
    """Campaign, and flow if one was named."""
    campaign_id: CampaignId
    """The campaign."""
    flow_id: FlowId | None
    """The flow; null for all flows."""
    score: Score
    """All its results, also those without a partner."""
    missing: int
    """Trials without a result."""


class MissionDifference(Part, frozen=True, kw_only=True):
    """A mission that the two sides do not pass equally often."""

    mission_id: MissionId | None
    """The mission."""
    flow_id: FlowId | None
    """The flow, if whole campaigns are compared."""
    pairs: int
    """Pairs that both sides scored."""
    passed_a: int
    """Of these, how many A passed."""
    passed_b: int
    """Of these, how many B passed."""


class PairedResults(Part, frozen=True, kw_only=True):
    """The pairs that both sides scored."""

    pairs: int
    """Number of pairs."""
    both: int
    """Pairs that both sides passed."""
    only_a: int
    """Pairs that only A passed."""
    only_b: int
    """Pairs that only B passed."""
    neither: int
    """Pairs that neither side passed."""
    rate_a: float | None
    """Rate of A; null without a pair."""
    rate_b: float | None
    """Rate of B; null without a pair."""
    difference: float | None
    """Rate of B minus rate of A; null without a pair."""
    difference_low: float | None
    """Lower end of the 95 % interval of the difference."""
    difference_high: float | None
    """Upper end of the 95 % interval of the difference."""
    p: float
    """McNemar's exact test over the pairs."""
    missions_better: int
    """Missions that B passes more often."""
    missions_worse: int
    """Missions that B passes less often."""
    p_missions: float
    """Sign test over the missions, which many repeats cannot inflate."""
    differing: tuple[MissionDifference, ...]
    """The missions that differ, largest difference first."""


class Comparison(Artifact, frozen=True, kw_only=True):
    """What `compare --json` prints."""

    exit: int
    """The exit code of the command."""
    verdict: str
    """The result in words."""
    a: Side
    """Side A."""
    b: Side
    """Side B."""
    verified: PairedResults
    """Missions with probes."""
    unverified: PairedResults
    """Missions without probes. They decide the exit code only if there are no pairs with probes."""
    not_compared: int
    """Trials that are not on both sides, or not scored on both."""
    not_same_work: int
    """Pairs of the same flow in two campaigns whose prompt, workspace, model or settings differ."""


def compare(a: SideSelection, b: SideSelection) -> Comparison:
    """Compare two sides. Exit 0 if B is not significantly worse, 1 if it is, 4 if no pair was scored by both."""
    common = [key for key in a.trials if key in b.trials]
    scored = [key for key in common if a.trials[key].result in SCORED and b.trials[key].result in SCORED]
    with_probes = [key for key in scored if _has_probes(a.trials[key]) and _has_probes(b.trials[key])]
    without_probes = [key for key in scored if not _has_probes(a.trials[key]) and not _has_probes(b.trials[key])]
    verified, unverified = _pair(a, b, with_probes), _pair(a, b, without_probes)
    exit_, verdict = _judge(verified, unverified)
    return Comparison(
        exit=exit_,
        verdict=verdict,
        a=_side(a),
        b=_side(b),
        verified=verified,
        unverified=unverified,
        not_compared=len({*a.trials, *b.trials}) - len(with_probes) - len(without_probes),
        not_same_work=sum(a.trials[key].digest != b.trials[key].digest for key in common)
        if a.campaign_id != b.campaign_id and a.flow_id == b.flow_id
        else 0,
    )


def _pair(a: SideSelection, b: SideSelection, keys: Sequence[Key]) -> PairedResults:
    counts = paired((_has_passed(a.trials[key]), _has_passed(b.trials[key])) for key in keys)
    low, high = counts.interval or (None, None)
    differing = tuple(_differing(a, b, keys))
    better = sum(each.passed_b > each.passed_a for each in differing)
    worse = len(differing) - better
    passed_a, passed_b = counts.both + counts.only_first, counts.both + counts.only_second
    return PairedResults(
        pairs=counts.pairs,
        both=counts.both,
        only_a=counts.only_first,
        only_b=counts.only_second,
        neither=counts.neither,
        rate_a=passed_a / counts.pairs if counts.pairs else None,
        rate_b=passed_b / counts.pairs if counts.pairs else None,
        difference=counts.difference,
        difference_low=low,
        difference_high=high,
        p=counts.p,
        missions_better=better,
        missions_worse=worse,
        p_missions=sign_test(better, worse),
        differing=differing,
    )


def _judge(verified: PairedResults, unverified: PairedResults) -> tuple[Exit, str]:
    """Judge by missions with probes, or by those without if there are no others: two tests would be one too many."""
    results, where = (verified, "") if verified.pairs else (unverified, " on missions without probes")
    if not results.pairs:
        return Exit.UNVERIFIED, "not comparable: no pair was scored on both sides"
    if results.p >= SIGNIFICANT:
        return Exit.OK, f"no significant difference{where}"
    if (results.difference or 0) > 0:
        return Exit.OK, f"B is significantly better{where}"
    return Exit.JUDGED_NO, f"B is significantly worse{where}"


def _differing(a: SideSelection, b: SideSelection, keys: Sequence[Key]) -> Iterator[MissionDifference]:
    counts: dict[tuple[FlowId | None, MissionId | None], list[int]] = {}
    for key in keys:
        count = counts.setdefault(key[:2], [0, 0, 0])
        count[0] += 1
        count[1] += _has_passed(a.trials[key])
        count[2] += _has_passed(b.trials[key])
    for (flow, mission), (pairs, one, other) in sorted(
        counts.items(), key=lambda each: -abs(each[1][2] - each[1][1]) / each[1][0]
    ):
        if one != other:
            yield MissionDifference(mission_id=mission, flow_id=flow, pairs=pairs, passed_a=one, passed_b=other)


def _side(selection: SideSelection) -> Side:
    return Side(
        name=selection.name,
        campaign_id=selection.campaign_id,
        flow_id=selection.flow_id,
        score=merge_sums(sum_results(selection.trials.values()).values()).score(),
        missing=sum(each.result is None for each in selection.trials.values()),
    )


def _has_probes(trial: TrialResult) -> bool:
    summary = None if trial.counted_attempt is None else trial.counted_attempt.summary
    return summary is not None and summary.has_probes


def _has_passed(trial: TrialResult) -> bool:
    return trial.result == PASSED
