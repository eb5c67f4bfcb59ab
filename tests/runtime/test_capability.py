"""What a runtime does not claim is refused before anything is sent, and its profile says no more than its claims."""

from itertools import pairwise

import msgspec
import pytest

from proctor.errors import RefusedError
from proctor.ids import StrategyId
from proctor.runtime.capability import LEAST, WORDS, Capability, Claims, demand
from proctor.runtime.registry import runtime_by_id, strategy_ids

NAMES = [field.name for field in msgspec.structs.fields(Claims)]


@pytest.mark.requirement("runtime.capability.contract")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_claimed_is_refused_by_name_and_what_is_claimed_is_not(name: str) -> None:
    with pytest.raises(RefusedError, match=f"mine cannot {WORDS[name]}") as refused:
        demand(Claims(), name, strategy=StrategyId("mine"))
    assert refused.value.code == "runtime.capability"
    demand(Claims(**{name: True}), name, strategy=StrategyId("mine"))


@pytest.mark.requirement("runtime.capability.contract")
@pytest.mark.parametrize("strategy", strategy_ids())
def test_a_runtime_claims_what_its_profile_stands_for_and_no_higher_profile_fits(strategy: StrategyId) -> None:
    runtime = runtime_by_id(strategy)
    claimed = {name for name in NAMES if getattr(runtime.claims, name)}
    assert LEAST[runtime.capability] <= claimed
    higher = list(Capability)[list(Capability).index(runtime.capability) + 1 :]
    assert [
        each for each in higher if LEAST[each] <= claimed and runtime.capability is not Capability.REPLAY_ONLY
    ] == []


def test_a_profile_is_made_of_claims_and_each_is_more_than_the_one_before() -> None:
    ladder = [LEAST[each] for each in Capability]
    assert set.union(*map(set, ladder)) <= set(NAMES)
    assert all(lower < upper for lower, upper in pairwise(ladder))
