"""Runtimes by strategy id, found by entry point, imported when used."""

import difflib
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from proctor.errors import InputError
from proctor.ids import StrategyId
from proctor.runtime.base import Runtime

GROUP = "proctor.runtimes"


@cache
def _found() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def strategy_ids() -> list[StrategyId]:
    return [StrategyId(name) for name in sorted(_found())]


def runtime_by_id(strategy: StrategyId) -> Runtime:
    """The runtime of that id. InputError with the nearest id where there is none."""
    point = _found().get(strategy)
    if point is None:
        near = difflib.get_close_matches(strategy, _found(), n=1)
        raise InputError(
            "spec.unknown-runtime",
            f"no runtime is called {strategy!r}; there are: {', '.join(strategy_ids())}",
            suggestion=near[0] if near else None,
        )
    runtime: Runtime = point.load()
    return runtime
