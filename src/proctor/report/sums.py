"""What the trials of a campaign come to, added up once by mission and flow. Pure."""

from collections.abc import Iterable

from proctor.event.outcome import Outcome
from proctor.ids import FlowId, MissionId
from proctor.report.campaign_state import TrialResult
from proctor.report.score import Sum


def sums_of(trials: Iterable[TrialResult]) -> dict[tuple[MissionId, FlowId], Sum]:
    """Of results, and of what infrastructure kept from one; each mission is closed."""
    sums: dict[tuple[MissionId, FlowId], Sum] = {}
    for each in trials:
        key = (each.trial.mission, each.trial.flow)
        if (sum_ := sums.get(key)) is None:
            sum_ = sums[key] = Sum()
        sum_.trials += 1
        if each.stands is not None and each.spoken is not None and each.spoken.summary is not None:
            sum_.add(each.spoken, each.spoken.summary, stands=each.stands)
        elif each.spoken is not None and each.spoken.state == "sealed" and each.spoken.outcome is not Outcome.CANCELLED:
            sum_.keep_from(each.spoken)
    for sum_ in sums.values():
        sum_.close_mission()
    return sums
