"""Every way to drive an agent that is registered: the ones that are installed here, and the ones that are not."""

from functools import cache
from typing import NamedTuple

from proctor.errors import ProctorError
from proctor.runtime.registry import runtime_by_id, strategy_ids
from proctor.spec.model import Isolation


class Lane(NamedTuple):
    strategy: str
    transport: str
    isolation: Isolation

    def __str__(self) -> str:
        return f"{self.strategy}-{self.transport}-{self.isolation}"


@cache
def absent() -> dict[str, str]:
    """Runtimes whose program is not here, and why."""
    found: dict[str, str] = {}
    for strategy in strategy_ids():
        try:
            runtime_by_id(strategy).locate({})
        except ProctorError as error:
            found[strategy] = f"{error.code}: {error.what}"
    return found


def lanes() -> list[Lane]:
    return [
        Lane(strategy, transport, isolation)
        for strategy in strategy_ids()
        if strategy not in absent()
        for transport in runtime_by_id(strategy).transports
        for isolation in Isolation
    ]
