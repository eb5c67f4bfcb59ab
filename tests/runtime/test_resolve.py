"""From a chain of ids to one runtime: the first that can start, with every refusal kept."""

import pytest

from proctor.errors import InputError, MachineError
from proctor.ids import StrategyId
from proctor.runtime.codex.program import OVERRIDE
from proctor.runtime.registry import runtime_by_id, strategy_ids
from proctor.runtime.resolve import Refusal, resolve

CODEX = StrategyId("codex_app_server")
UNKNOWN = StrategyId("codex_app_sever")


@pytest.mark.requirement("runtime.strategy.ids")
def test_a_runtime_is_found_by_its_id_and_an_unknown_id_gets_the_nearest() -> None:
    assert CODEX in strategy_ids()
    assert runtime_by_id(CODEX).id == CODEX
    with pytest.raises(InputError) as refused:
        runtime_by_id(UNKNOWN)
    assert (refused.value.code, refused.value.suggestion) == ("spec.unknown-runtime", CODEX)


@pytest.mark.requirement("runtime.strategy.fallback")
def test_the_first_of_a_chain_that_can_start_is_taken_and_refusals_are_kept() -> None:
    found = resolve([UNKNOWN, CODEX], options={})
    assert found.runtime.id == CODEX
    [refusal] = found.refusals
    assert (refusal.strategy, refusal.code) == (UNKNOWN, "spec.unknown-runtime")
    assert isinstance(refusal, Refusal)


@pytest.mark.requirement("runtime.strategy.fallback")
def test_a_chain_of_which_none_can_start_raises_the_last_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OVERRIDE, "/nowhere/codex")
    with pytest.raises(MachineError) as refused:
        resolve([UNKNOWN, CODEX], options={})
    assert refused.value.code == "machine.binary-missing"
