"""The conformance suite on the real programs: every runtime of ours, and every transport of it."""

import os
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from proctor import places
from proctor.ids import StrategyId
from proctor.runtime.registry import built_in_ids, runtime_by_id
from proctor.spec.model import Isolation
from proctor.testing.conformance import Case, Result, Verdict, cases, open_subject, run_suite
from proctor.testing.conformance.look import booked
from proctor.testing.conformance.subject import isolations_of
from tests.locked import locked_codex_sha256

pytestmark = pytest.mark.real_agent

CODEX = StrategyId("codex_app_server")
# Where each session has a process of its own anyhow, one isolation is enough; `make chaos` tries both.
ONE_OF_THEM = {
    "claude_code": Isolation.PROCESS,
    "codex_exec": Isolation.SHARED,
    "process": Isolation.SHARED,
}
IS_ALL = "PROCTOR_CONFORMANCE_ALL" in os.environ

CANNOT_BE_TRIED = {
    "codex_exec": {"unknown-request", "reordered-frames"},
    "process": {
        "tool-call",
        "unknown-request",
        "duplicate-frames",
        "reordered-frames",
        "malformed-frames",
        "unknown-frames",
        "disconnect",
    },
    "replay": {"unknown-request", "hang"},
}
"""What nobody can ask of it; of all else each case is passed, or refused because it is not claimed."""


def lanes() -> Iterator[Any]:
    for strategy in built_in_ids():
        runtime = runtime_by_id(strategy)
        is_one = strategy in ONE_OF_THEM and not IS_ALL
        for transport in runtime.transports:
            for isolation in (ONE_OF_THEM[strategy],) if is_one else isolations_of(runtime):
                name, marks = f"{strategy}-{transport}-{isolation}", pytest.mark.agent(strategy)
                yield pytest.param(strategy, transport, isolation, id=name, marks=marks)


def is_claimed(case: Case, strategy: StrategyId) -> bool:
    return all(getattr(runtime_by_id(strategy).claims, claim) for claim in case.claims)


@pytest.mark.requirement("runtime.conformance")
@pytest.mark.requirement("runtime.capability.proven")
@pytest.mark.timeout(600)  # a case takes a second, and several on a busy machine
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
    assert {case for case, result in results.items() if result is Result.REFUSED} == unclaimed
    untried = {case for case, result in results.items() if result is Result.NOT_APPLICABLE}
    assert untried == CANNOT_BE_TRIED.get(strategy, set())
    if strategy == CODEX:
        assert (digest, set(results.values())) == (locked_codex_sha256(), {Result.PASSED})
    assert list(places.cache_dir().glob("runs/conformance-*")) == []
    assert booked() == {}, "every process of it is known to be gone"
