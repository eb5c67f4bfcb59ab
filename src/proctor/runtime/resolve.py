"""From a chain of strategy ids to one runtime that can really start; every refusal on the way is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.errors import ProctorError
from proctor.fact import Authority, Fact
from proctor.ids import StrategyId
from proctor.runtime.base import Executable, Runtime
from proctor.runtime.registry import runtime_by_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    strategy: StrategyId
    code: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The runtime chosen, its program, and who was passed over and why."""

    runtime: Runtime
    executable: Executable | None
    refusals: tuple[Refusal, ...]

    def fact(self) -> Fact:
        refused = [{"strategy": each.strategy, "code": each.code, "what": each.what} for each in self.refusals]
        return Fact(
            value={"chosen": self.runtime.id, "refused": refused},
            authority=Authority.OBSERVED,
            source="each of the flow's chain, in order",
        )


def resolve(chain: Sequence[StrategyId], *, options: Mapping[StrategyId, Mapping[str, Any]]) -> Resolution:
    """The first of the chain that is known and installed; the last refusal is raised where none is."""
    refusals: list[Refusal] = []
    last: ProctorError | None = None
    for strategy in chain:
        try:
            runtime = runtime_by_id(strategy)
            program = runtime.locate(options.get(strategy, {}))
            return Resolution(runtime=runtime, executable=program, refusals=tuple(refusals))
        except ProctorError as error:
            refusals.append(Refusal(strategy=strategy, code=error.code, what=error.what))
            last = error
    assert last is not None, "a chain has at least one strategy"
    raise last
