"""What resume has left to do."""

from collections.abc import Set as AbstractSet

from proctor.ids import CellId
from proctor.plan.model import Cell, Plan


def remaining(plan: Plan, sealed: AbstractSet[CellId]) -> tuple[Cell, ...]:
    """Cells without a seal, in the order of the plan."""
    return tuple(cell for cell in plan.cells if cell.id not in sealed)
