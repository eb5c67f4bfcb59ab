"""The conformance suite on the real programs: every runtime of ours, and every transport of it."""

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from proctor import places
from proctor.ids import RuntimeId
from proctor.runtime.registry import built_in_ids, runtime_by_id
from proctor.spec.choices import Isolation
from proctor.testing.conformance import Case, CaseVerdict, Result, case_by_id, cases, open_subject, run_case, run_suite
from proctor.testing.conformance.processes import unsettled_intents
from proctor.testing.conformance.subject import isolations_of
from tests.locked import locked_codex_sha256

pytestmark = pytest.mark.real_agent

CODEX = RuntimeId("codex_app_server")
# `make test` runs the whole suite once for each runtime, in this isolation and on its first transport, and one case on
# every other pair of transport and isolation. `make conformance` runs the whole suite on all of them.
WHOLE_SUITE_IN = {
    "claude_code": Isolation.PROCESS,
    "codex_app_server": Isolation.SHARED,
    "codex_exec": Isolation.SHARED,
    "process": Isolation.SHARED,
    "replay": Isolation.PROCESS,
}

CANNOT_BE_TRIED = {
    "codex_exec": {"unknown-request", "reordered-frames"},
    "process": {
        "context-use",
        "tool-call",
        "unknown-request",
        "duplicate-frames",
        "reordered-frames",
        "malformed-frames",
        "unknown-frames",
        "disconnect",
    },
    "replay": {"context-use", "unknown-request", "hang"},
}
"""What nobody can ask of it; of all else each case is passed, or refused because it is not declared."""


def pairs(*, is_whole: bool) -> Iterator[Any]:
    """Every pair of transport and isolation: to run the whole suite on, or those that get one case in `make test`."""
    for runtime_id in built_in_ids():
        runtime = runtime_by_id(runtime_id)
        chosen = (runtime.transports[0], WHOLE_SUITE_IN[runtime_id])
        for transport in runtime.transports:
            for isolation in isolations_of(runtime):
                is_chosen = (transport, isolation) == chosen
                if is_whole or not is_chosen:
                    marks = [
                        pytest.mark.agent(runtime_id),
                        *([pytest.mark.extended] if is_whole and not is_chosen else []),
                    ]
                    yield pytest.param(
                        runtime_id, transport, isolation, id=f"{runtime_id}-{transport}-{isolation}", marks=marks
                    )


def is_declared(case: Case, runtime_id: RuntimeId) -> bool:
    return all(getattr(runtime_by_id(runtime_id).capabilities, capability) for capability in case.capabilities)


@pytest.mark.requirement("runtime.conformance")
@pytest.mark.requirement("runtime.capability.proven")
@pytest.mark.long
@pytest.mark.timeout(600)  # a case takes a second, and several on a busy machine
@pytest.mark.parametrize(("runtime_id", "transport", "isolation"), list(pairs(is_whole=True)))
def test_a_runtime_shows_what_it_claims_and_refuses_what_it_does_not(
    runtime_id: RuntimeId, transport: str, isolation: Isolation
) -> None:
    async def tried() -> tuple[str, tuple[CaseVerdict, ...]]:
        async with open_subject(runtime_id, transport=transport, isolation=isolation) as subject:
            return subject.digest, await run_suite(subject)

    digest, verdicts = anyio.run(tried)
    results = {each.case: each.result for each in verdicts}
    assert [f"{each.case}: {each.what}" for each in verdicts if each.result is Result.FAILED] == []
    undeclared = {case.id for case in cases() if not is_declared(case, runtime_id)}
    assert {case for case, result in results.items() if result is Result.REFUSED} == undeclared
    untried = {case for case, result in results.items() if result is Result.NOT_APPLICABLE}
    assert untried == CANNOT_BE_TRIED.get(runtime_id, set())
    if runtime_id == CODEX:
        assert (digest, set(results.values())) == (locked_codex_sha256(), {Result.PASSED})
    assert list(places.cache_dir().glob("runs/conformance-*")) == []
    assert unsettled_intents() == {}, "every process of it is known to be gone"


@pytest.mark.requirement("runtime.conformance")
@pytest.mark.parametrize(("runtime_id", "transport", "isolation"), list(pairs(is_whole=False)))
def test_a_runtime_takes_a_turn_on_each_transport_in_each_isolation(
    runtime_id: RuntimeId, transport: str, isolation: Isolation
) -> None:
    async def tried() -> CaseVerdict:
        async with open_subject(runtime_id, transport=transport, isolation=isolation) as subject:
            return await run_case(case_by_id("one-turn"), subject)

    verdict = anyio.run(tried)
    assert (verdict.result, verdict.what) == (Result.PASSED, None)
