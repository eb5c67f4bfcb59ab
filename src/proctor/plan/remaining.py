"""What resume has left to do."""

from collections.abc import Set as AbstractSet

from proctor.ids import CellId
from proctor.plan.model import Cell, Plan


def remaining(plan: Plan, settled: AbstractSet[CellId]) -> tuple[Cell, ...]:
    """Cells whose result does not stand yet, in the order of the plan."""
    return tuple(cell for cell in plan.cells if cell.id not in settled)
