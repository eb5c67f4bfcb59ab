"""What a runtime does not claim is refused before anything is sent, and its profile says no more than its claims."""

from itertools import pairwise

import msgspec
import pytest

from proctor.errors import RefusedError
from proctor.ids import RuntimeId
from proctor.runtime.capability import LEAST, WORDS, Capabilities, CapabilityProfile, require_capability
from proctor.runtime.registry import runtime_by_id, runtime_ids

NAMES = [field.name for field in msgspec.structs.fields(Capabilities)]


@pytest.mark.requirement("runtime.capability.contract")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_declared_is_refused_by_name_and_what_is_declared_is_not(name: str) -> None:
    with pytest.raises(RefusedError, match=f"mine cannot {WORDS[name]}") as refused:
        require_capability(Capabilities(), name, runtime_id=RuntimeId("mine"))
    assert refused.value.code == "runtime.capability"
    require_capability(Capabilities(**{name: True}), name, runtime_id=RuntimeId("mine"))


@pytest.mark.requirement("runtime.capability.contract")
@pytest.mark.parametrize("runtime_id", runtime_ids())
def test_a_runtime_claims_what_its_profile_stands_for_and_no_higher_profile_fits(runtime_id: RuntimeId) -> None:
    runtime = runtime_by_id(runtime_id)
    claimed = {name for name in NAMES if getattr(runtime.capabilities, name)}
    assert LEAST[runtime.profile] <= claimed
    higher = list(CapabilityProfile)[list(CapabilityProfile).index(runtime.profile) + 1 :]
    assert [
        each for each in higher if LEAST[each] <= claimed and runtime.profile is not CapabilityProfile.REPLAY_ONLY
    ] == []


def test_a_profile_is_made_of_claims_and_each_is_more_than_the_one_before() -> None:
    ladder = [LEAST[each] for each in CapabilityProfile]
    assert set.union(*map(set, ladder)) <= set(NAMES)
    assert all(lower < upper for lower, upper in pairwise(ladder))
