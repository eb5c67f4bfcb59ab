"""What the cells of a campaign come to, added up once by mission and flow. Pure."""

from collections.abc import Iterable

from proctor.event.outcome import Outcome
from proctor.ids import FlowId, MissionId
from proctor.report.score import Sum
from proctor.report.standing import CellResult


def sums_of(cells: Iterable[CellResult]) -> dict[tuple[MissionId, FlowId], Sum]:
    """Of results, and of what infrastructure kept from one; each mission is closed."""
    sums: dict[tuple[MissionId, FlowId], Sum] = {}
    for each in cells:
        key = (each.cell.mission, each.cell.flow)
        if (sum_ := sums.get(key)) is None:
            sum_ = sums[key] = Sum()
        sum_.cells += 1
        if each.stands is not None and each.spoken is not None:
            sum_.add(each.spoken, each.tally, stands=each.stands)
        elif each.spoken is not None and each.spoken.state == "sealed" and each.spoken.outcome is not Outcome.CANCELLED:
            sum_.keep_from(each.spoken)
    for sum_ in sums.values():
        sum_.close_mission()
    return sums
