"""How a runtime that asks no model is made to do what a script says."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from proctor.ids import StrategyId


class Stage(Protocol):
    """One whose agent asks a model needs none, for the model is scripted."""

    def options(self, steps: Sequence[Mapping[str, Any]], *, folder: Path) -> Mapping[str, Any]:
        """The flow's options with which it does what these steps say. What it needs for that may be written there.

        NotApplicableError for steps that it cannot be made to do.
        """


STAGES: Final[dict[StrategyId, Stage]] = {}
"""Those of our own runtimes."""
