"""Two flows, or two campaigns, on the same missions: pair by pair, with how sure the difference is. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proctor.errors import Exit
from proctor.ids import CampaignId, FlowId, MissionId
from proctor.report.campaign_state import TrialResult
from proctor.report.score import FAILED, PASSED, ReportStruct, Score, Sum
from proctor.report.stats import SIGNIFICANT, paired, sign_test
from proctor.report.sums import sums_of

Key = tuple[FlowId | None, MissionId, int]
"""What makes two trials a pair: the mission and the repeat, and the flow where whole campaigns are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSelection:
    """One side as it was asked for."""

    name: str
    campaign_id: CampaignId
    flow_id: FlowId | None
    trials: Mapping[Key, TrialResult]


class Side(ReportStruct, frozen=True, kw_only=True):
    """One side, and what all its results come to, those without a partner among them. `missing` trials have
    none yet.
    """

    name: str
    campaign_id: CampaignId
    flow_id: FlowId | None
    score: Score
    missing: int


class MissionDifference(ReportStruct, frozen=True, kw_only=True):
    """A mission that the two do not pass alike often, of the pairs that were compared."""

    mission_id: MissionId
    flow_id: FlowId | None
    pairs: int
    passed_a: int
    passed_b: int


class Comparison(ReportStruct, frozen=True, kw_only=True):
    """What `compare --json` prints. `difference` is the rate of B less that of A, over the pairs that both scored.

    `p` is McNemar's exact test over pairs, `p_missions` the sign test over missions, which repeats cannot flatter.
    `not_same_work` counts pairs of the same flow in two campaigns that were not planned alike: another prompt,
    workspace, model or setting.
    """

    schema_version: int = 1
    exit: int
    verdict: str
    a: Side
    b: Side
    pairs: int
    both: int
    only_a: int
    only_b: int
    neither: int
    rate_a: float | None
    rate_b: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    p: float
    missions_better: int
    missions_worse: int
    p_missions: float
    apart: tuple[MissionDifference, ...]
    not_compared: int
    not_same_work: int


def compare(a: SideSelection, b: SideSelection) -> Comparison:
    """Exit 0 where B is not significantly worse, 1 where it is, 4 where there is no pair that both scored."""
    common = [key for key in a.trials if key in b.trials]
    scored = [key for key in common if _is_scored(a.trials[key]) and _is_scored(b.trials[key])]
    counts = paired((_has_passed(a.trials[key]), _has_passed(b.trials[key])) for key in scored)
    low, high = counts.interval or (None, None)
    apart = tuple(_apart(a, b, scored))
    better = sum(each.passed_b > each.passed_a for each in apart)
    worse = len(apart) - better
    exit_, verdict = _judge(counts.pairs, counts.difference, counts.p)
    passed_a, passed_b = counts.both + counts.only_first, counts.both + counts.only_second
    return Comparison(
        exit=exit_,
        verdict=verdict,
        a=_side(a),
        b=_side(b),
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
        apart=apart,
        not_compared=len({*a.trials, *b.trials}) - len(scored),
        not_same_work=sum(a.trials[key].trial.digest != b.trials[key].trial.digest for key in common)
        if a.campaign_id != b.campaign_id and a.flow_id == b.flow_id
        else 0,
    )


def _judge(pairs: int, difference: float | None, p: float) -> tuple[Exit, str]:
    if not pairs or difference is None:
        return Exit.UNVERIFIED, "not comparable: there is no pair that both scored"
    if p >= SIGNIFICANT:
        return Exit.OK, "no significant difference"
    return (Exit.OK, "B is significantly better") if difference > 0 else (Exit.JUDGED_NO, "B is significantly worse")


def _apart(a: SideSelection, b: SideSelection, scored: list[Key]) -> Iterator[MissionDifference]:
    """Those that differ most first."""
    counts: dict[tuple[FlowId | None, MissionId], list[int]] = {}
    for key in scored:
        count = counts.setdefault(key[:2], [0, 0, 0])
        count[0] += 1
        count[1] += _has_passed(a.trials[key])
        count[2] += _has_passed(b.trials[key])
    for (flow, mission), (pairs, one, other) in sorted(
        counts.items(), key=lambda each: -abs(each[1][2] - each[1][1]) / each[1][0]
    ):
        if one != other:
            yield MissionDifference(mission_id=mission, flow_id=flow, pairs=pairs, passed_a=one, passed_b=other)


def _side(chosen: SideSelection) -> Side:
    whole = Sum()
    for each in sums_of(chosen.trials.values()).values():
        whole.merge(each)
    return Side(
        name=chosen.name,
        campaign_id=chosen.campaign_id,
        flow_id=chosen.flow_id,
        score=whole.score(),
        missing=sum(each.stands is None for each in chosen.trials.values()),
    )


def _is_scored(result: TrialResult) -> bool:
    return result.stands in (PASSED, FAILED)


def _has_passed(result: TrialResult) -> bool:
    return result.stands == PASSED
