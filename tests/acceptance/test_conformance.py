"""The conformance suite on the real programs: every runtime that is installed, every transport, both isolations."""

import anyio
import pytest

from proctor import places
from proctor.ids import StrategyId
from proctor.runtime.registry import runtime_by_id
from proctor.testing.conformance import Result, Verdict, cases, open_subject, run_suite
from tests.lanes import Lane, lanes
from tests.locked import locked_codex_sha256

pytestmark = pytest.mark.real_agent

CODEX = "codex_app_server"


@pytest.mark.requirement("runtime.conformance")
@pytest.mark.requirement("runtime.capability.proven")
@pytest.mark.parametrize("lane", lanes(), ids=str)
def test_a_runtime_shows_what_it_claims_and_refuses_what_it_does_not(lane: Lane) -> None:
    async def tried() -> tuple[str, tuple[Verdict, ...]]:
        async with open_subject(lane.strategy, transport=lane.transport, isolation=lane.isolation) as subject:
            return subject.digest, await run_suite(subject)

    digest, verdicts = anyio.run(tried)
    claims = runtime_by_id(StrategyId(lane.strategy)).claims
    assert [f"{each.case}: {each.what}" for each in verdicts if each.result is Result.FAILED] == []
    refused = {each.case for each in verdicts if each.result is Result.REFUSED}
    assert refused == {case.id for case in cases() if not all(getattr(claims, name) for name in case.claims)}
    if lane.strategy == CODEX:
        assert (digest, {each.result for each in verdicts}) == (locked_codex_sha256(), {Result.PASSED})
    assert list(places.cache_dir().glob("runs/conformance-*")) == []
    assert list(places.state_dir().glob("spawns/*/trial-*")) == [], "every process of it is known to be gone"
