"""The conformance suite on the real programs: every runtime that is registered, every transport, both isolations."""

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from proctor import places
from proctor.ids import StrategyId
from proctor.runtime.registry import runtime_by_id, strategy_ids
from proctor.spec.model import Isolation
from proctor.testing.conformance import Case, Result, Verdict, cases, open_subject, run_suite
from tests.locked import locked_codex_sha256

pytestmark = pytest.mark.real_agent

CODEX = StrategyId("codex_app_server")


def lanes() -> Iterator[Any]:
    for strategy in strategy_ids():
        for transport in runtime_by_id(strategy).transports:
            for isolation in Isolation:
                name, marks = f"{strategy}-{transport}-{isolation}", pytest.mark.agent(strategy)
                yield pytest.param(strategy, transport, isolation, id=name, marks=marks)


def is_claimed(case: Case, strategy: StrategyId) -> bool:
    return all(getattr(runtime_by_id(strategy).claims, claim) for claim in case.claims)


@pytest.mark.requirement("runtime.conformance")
@pytest.mark.requirement("runtime.capability.proven")
@pytest.mark.parametrize(("strategy", "transport", "isolation"), list(lanes()))
def test_a_runtime_shows_what_it_claims_and_refuses_what_it_does_not(
    strategy: StrategyId, transport: str, isolation: Isolation
) -> None:
    async def tried() -> tuple[str, tuple[Verdict, ...]]:
        async with open_subject(strategy, transport=transport, isolation=isolation) as subject:
            return subject.digest, await run_suite(subject)

    digest, verdicts = anyio.run(tried)
    results = {each.case: each.result for each in verdicts}
    assert [f"{each.case}: {each.what}" for each in verdicts if each.result is Result.FAILED] == []
    unclaimed = {case.id for case in cases() if not is_claimed(case, strategy)}
    assert {case for case, result in results.items() if result is Result.REFUSED} <= unclaimed
    assert {case for case, result in results.items() if result is Result.PASSED} & unclaimed == set()
    if strategy == CODEX:
        assert (digest, set(results.values())) == (locked_codex_sha256(), {Result.PASSED})
    assert list(places.cache_dir().glob("runs/conformance-*")) == []
    assert list(places.state_dir().glob("spawns/*/trial-*")) == [], "every process of it is known to be gone"
