"""Facts of runner.ref.json are a fold of the frames: one that was changed is told, whichever it is."""

from typing import Any

import msgspec
import pytest

from proctor.event.known_facts import FACTS
from proctor.evidence.artifacts import RunnerRef
from proctor.evidence.layout import RUNNER_REF, AttemptPaths
from tests.attempt.forge import alter_json, reseal
from tests.attempt.recorded import strictly
from tests.lab import runner_ref_of

pytestmark = pytest.mark.real_agent

Facts = dict[str, dict[str, Any]]


def _facts(paths: AttemptPaths) -> Facts:
    facts: Facts = msgspec.json.decode(paths.runner_ref.read_bytes())["facts"]
    return facts


def _forge(paths: AttemptPaths, facts: Facts) -> list[str]:
    """What strict validation says of the file, once it is sealed anew."""
    alter_json(paths.runner_ref, facts=facts)
    reseal(paths)
    found = strictly(paths)
    assert {(finding.code, finding.file) for finding in found.findings} == {("evidence.derived", RUNNER_REF)}
    assert found.status == "invalid"
    return [finding.detail for finding in found.findings]


@pytest.mark.requirement("evidence.validate")
def test_a_fact_that_was_tampered_with_is_told_whichever_it_is(fix: AttemptPaths) -> None:
    facts = _facts(fix)
    for name, fact in facts.items():
        [changed] = _forge(fix, {**facts, name: {**fact, "value": "forged"}})
        assert changed.startswith(f"fact {name} is 'forged' ("), changed
        [gone] = _forge(fix, {other: each for other, each in facts.items() if other != name})
        assert gone.startswith(f"fact {name} is absent, but the frames give "), gone


@pytest.mark.requirement("evidence.validate")
def test_a_stronger_word_a_dropped_conflict_and_an_invented_fact_are_told(fix: AttemptPaths) -> None:
    facts = _facts(fix)
    capability = {**facts["capability"], "authority": "verified"}
    [stronger] = _forge(fix, {**facts, "capability": capability})
    assert stronger.startswith("fact capability is ")
    invented = {"value": "yes", "authority": "verified", "source": "me"}
    assert _forge(fix, {**facts, "signedOff": invented}) == [
        "fact signedOff is 'yes' (verified), but the frames give absent"
    ]


def test_every_fact_of_a_real_attempt_is_in_the_table(fix: AttemptPaths) -> None:
    ref: RunnerRef = runner_ref_of(fix)
    assert set(ref.facts) <= set(FACTS)
