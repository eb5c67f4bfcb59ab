"""Comparison of two flows or two campaigns on the same missions, with a significance test. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from proctor.errors import Exit
from proctor.evidence.artifacts import Artifact, Part
from proctor.evidence.summary import PASSED, SCORED
from proctor.ids import CampaignId, FlowId, MissionId
from proctor.report.campaign_state import TrialResult
from proctor.report.score import CLUSTERED, Score, merge_sums, sum_results
from proctor.report.stats import SIGNIFICANT, Differences, count_differences

Key = tuple[FlowId | None, MissionId | None, int | None]
"""What names a trial on both sides: mission and repeat, and the flow if whole campaigns are compared."""


_SCRIPTED = "scripted: compares two scripts, not two agents"
_HALF_SCRIPTED = "scripted: compares a script with an agent, which says nothing about either"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSelection:
    """One side of a comparison, as it was selected."""

    name: str
    campaign_id: CampaignId
    flow_id: FlowId | None
    trials: Mapping[Key, TrialResult]
    failed_in: CampaignId | None = None


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
    is_scripted: bool
    """Whether results of this side come from the scripted model."""
    missing: int
    """Trials without a result."""
    failed_in: CampaignId | None
    """The campaign whose failed trials are the only ones of this side; null for any other campaign."""


class MissionDifference(Part, frozen=True, kw_only=True):
    """What both sides scored of one mission."""

    mission_id: MissionId | None
    """The mission."""
    flow_id: FlowId | None
    """The flow, if whole campaigns are compared."""
    scored_a: int
    """Scored results of A."""
    passed_a: int
    """Of these, how many passed."""
    scored_b: int
    """Scored results of B."""
    passed_b: int
    """Of these, how many passed."""

    @property
    def difference(self) -> float:
        """Rate of B minus rate of A."""
        return self.passed_b / self.scored_b - self.passed_a / self.scored_a


class DifferenceTest(Part, frozen=True, kw_only=True):
    """How certain a difference is."""

    difference_low: float
    """Lower end of the 95 % interval of the difference. If p is below 0.05, the interval is on one side of 0."""
    difference_high: float
    """Upper end of the 95 % interval of the difference."""
    interval_method: str
    """How the interval was computed: `Tango`, or `clustered by mission` if a mission has several scored results."""
    p: float
    """Two-sided p-value of the hypothesis that the sides are equally good."""
    p_method: str
    """How p was computed: `McNemar, exact`, or `sign-flip test by mission` if a mission has several scored results."""


class MissionResults(Part, frozen=True, kw_only=True):
    """The missions that both sides scored. Repeats of a mission are never paired with each other."""

    missions: int
    """Number of missions."""
    results_a: int
    """Scored results of A in these missions."""
    results_b: int
    """Scored results of B in these missions."""
    rate_a: float | None
    """Rate of A, as the mean of its rates by mission; null without a mission."""
    rate_b: float | None
    """Rate of B, as the mean of its rates by mission; null without a mission."""
    difference: float | None
    """Rate of B minus rate of A; null without a mission."""
    missions_better: int
    """Missions that B passes more often."""
    missions_worse: int
    """Missions that B passes less often."""
    test: DifferenceTest | None
    """How certain the difference is; null without a mission."""
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
    verified: MissionResults
    """Missions with probes."""
    unverified: MissionResults
    """Missions without probes. They decide the exit code only if there are no missions with probes."""
    not_compared: int
    """Trials of either side that are not scored, or whose mission the other side did not score."""
    not_same_work: int
    """Trials of the same flow in two campaigns whose prompt, workspace, model or settings differ."""


def compare(a: SideSelection, b: SideSelection) -> Comparison:
    """Compare two sides. Exit 0 if B is not significantly worse, 1 if it is, 4 if no mission was scored by both."""
    verified = _compare_missions(_common(a, b, has_probes=True))
    unverified = _compare_missions(_common(a, b, has_probes=False))
    exit_, verdict = _judge(verified, unverified)
    side_a, side_b = _side(a), _side(b)
    if (side_a.is_scripted or side_b.is_scripted) and exit_ is not Exit.UNVERIFIED:
        # A p-value about two scripts would look like one about two agents.
        exit_, verdict = Exit.OK, _SCRIPTED if side_a.is_scripted and side_b.is_scripted else _HALF_SCRIPTED
        verified, unverified = (msgspec.structs.replace(each, test=None) for each in (verified, unverified))
    compared = sum(each.results_a + each.results_b for each in (verified, unverified))
    return Comparison(
        exit=exit_,
        verdict=verdict,
        a=side_a,
        b=side_b,
        verified=verified,
        unverified=unverified,
        not_compared=len(a.trials) + len(b.trials) - compared,
        not_same_work=sum(key in b.trials and trial.digest != b.trials[key].digest for key, trial in a.trials.items())
        if a.campaign_id != b.campaign_id and a.flow_id == b.flow_id
        else 0,
    )


def _common(a: SideSelection, b: SideSelection, *, has_probes: bool) -> list[MissionDifference]:
    """Return each mission and flow that both sides scored, with probes or without."""
    first, second = (_count(each.trials, has_probes=has_probes) for each in (a, b))
    return [
        MissionDifference(
            mission_id=mission,
            flow_id=flow,
            scored_a=scored,
            passed_a=passed,
            scored_b=second[flow, mission][0],
            passed_b=second[flow, mission][1],
        )
        for (flow, mission), (scored, passed) in first.items()
        if (flow, mission) in second
    ]


def _count(
    trials: Mapping[Key, TrialResult], *, has_probes: bool
) -> dict[tuple[FlowId | None, MissionId | None], list[int]]:
    counts: dict[tuple[FlowId | None, MissionId | None], list[int]] = {}
    for (flow, mission, _), trial in trials.items():
        if trial.result in SCORED and _has_probes(trial) is has_probes:
            count = counts.setdefault((flow, mission), [0, 0])
            count[0] += 1
            count[1] += trial.result == PASSED
    return counts


def _compare_missions(common: Iterable[MissionDifference]) -> MissionResults:
    tables: dict[MissionId | None, list[MissionDifference]] = {}
    for each in common:
        tables.setdefault(each.mission_id, []).append(each)
    found = count_differences(
        Counter(
            tuple((each.scored_a, each.passed_a, each.scored_b, each.passed_b) for each in table)
            for table in tables.values()
        )
    )
    rows = [each for table in tables.values() for each in table]
    return MissionResults(
        missions=found.count,
        results_a=sum(each.scored_a for each in rows),
        results_b=sum(each.scored_b for each in rows),
        rate_a=found.mean(found.first),
        rate_b=found.mean(found.second),
        difference=found.mean(found.second - found.first),
        missions_better=found.better,
        missions_worse=found.worse,
        test=_test(found),
        differing=tuple(
            sorted((each for each in rows if each.difference), key=lambda each: abs(each.difference), reverse=True)
        ),
    )


def _test(found: Differences) -> DifferenceTest | None:
    p = found.p()
    if (interval := found.interval(p=p)) is None:
        return None
    return DifferenceTest(
        difference_low=interval[0],
        difference_high=interval[1],
        interval_method=CLUSTERED if found.has_repeats else "Tango",
        p=p,
        p_method="sign-flip test by mission" if found.has_repeats else "McNemar, exact",
    )


def _judge(verified: MissionResults, unverified: MissionResults) -> tuple[Exit, str]:
    """Judge by missions with probes, or by those without if there are no others: two tests would be one too many."""
    results, where = (verified, "") if verified.test else (unverified, " on missions without probes")
    if results.test is None:
        return Exit.UNVERIFIED, "not comparable: no mission was scored on both sides"
    if results.test.p >= SIGNIFICANT:
        return Exit.OK, f"no significant difference{where}"
    if (results.difference or 0) > 0:
        return Exit.OK, f"B is significantly better{where}"
    return Exit.JUDGED_NO, f"B is significantly worse{where}"


def _side(selection: SideSelection) -> Side:
    return Side(
        name=selection.name,
        campaign_id=selection.campaign_id,
        flow_id=selection.flow_id,
        score=merge_sums(sum_results(selection.trials.values()).values()).score(),
        is_scripted=any(each.is_scripted for each in selection.trials.values()),
        missing=sum(each.result is None for each in selection.trials.values()),
        failed_in=selection.failed_in,
    )


def _has_probes(trial: TrialResult) -> bool:
    summary = None if trial.counted_attempt is None else trial.counted_attempt.summary
    return summary is not None and summary.has_probes
