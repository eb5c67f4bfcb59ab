"""Facts are what the record says, on the strongest word; whoever disagrees is kept beside it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given

from proctor.event.facts import FactsFold
from proctor.event.model import (
    Event,
    FactsStated,
    ModelRerouted,
    SessionBegan,
    Tokens,
    TurnBegan,
    UsageAuthority,
    UsageReported,
    WarningRaised,
)
from proctor.event.usage import UsageFold
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.ids import ThreadId, TurnId
from tests.event.streams import streams, total

FOLDED = {
    "credentialSource",
    "credentialState",
    "history",
    "model",
    "persistence",
    "processState",
    "threadStatus",
    "usage",
    "versions",
    "warnings",
}


def declared(value: Any) -> Fact:
    return Fact(value=value, authority=Authority.DECLARED, source="flow")


def stated(**facts: Fact) -> FactsStated:
    return FactsStated(facts=facts, frame=1, at_ms=1)


def began(**fields: Any) -> SessionBegan:
    return SessionBegan(thread=ThreadId("th"), frame=2, at_ms=1, **fields)


def folded(*events: Event) -> dict[str, Fact]:
    facts, usage = FactsFold(), UsageFold()
    for event in events:
        facts.feed(event)
        usage.feed(event)
    return facts.finish(usage.finish())


@pytest.mark.requirement("runtime.events.pure")
@given(streams)
def test_the_same_record_gives_the_same_facts_and_every_one_of_ours_is_there(events: list[Event]) -> None:
    again = msgspec.json.decode(msgspec.json.encode(events), type=list[Event])
    assert msgspec.json.encode(folded(*again)) == msgspec.json.encode(folded(*events))
    assert set(folded(*events)) >= FOLDED


def test_of_nothing_everything_is_unknown() -> None:
    facts = folded()
    assert set(facts) == FOLDED
    assert {name for name, fact in facts.items() if fact.authority is not Authority.UNKNOWN} == {"warnings"}


def test_what_is_stated_of_a_runtime_is_kept_as_it_was_stated() -> None:
    runtime = declared("selectable")
    assert folded(stated(runtimeState=runtime))["runtimeState"] == runtime


def test_persistence_is_what_was_asked_for_until_the_agent_says_what_it_is() -> None:
    asked = stated(persistence=declared("persistent"))
    assert folded(asked)["persistence"] == declared("persistent")
    echoed = folded(asked, began(ephemeral=False))["persistence"]
    assert (echoed.value, echoed.authority, echoed.conflicts) == ("persistent", "reported", ())
    other = folded(asked, began(ephemeral=True))["persistence"]
    assert (other.value, other.authority, other.conflicts) == ("ephemeral", "reported", (declared("persistent"),))
    assert folded(asked, began())["persistence"] == declared("persistent")


def test_the_model_that_answers_is_a_fact_apart_from_the_one_that_was_asked_for() -> None:
    asked = stated(model=declared({"provider": "p", "requested": "large"}))
    unknown = {"provider": "p", "requested": "large", "effective": None, "reroutedTo": None}
    assert folded(asked)["model"] == declared(unknown)
    echoed = folded(asked, began(model="medium"), ModelRerouted(to="small", frame=7, at_ms=1))["model"]
    assert echoed == Fact(
        value={"provider": "p", "requested": "large", "effective": "medium", "reroutedTo": "small"},
        authority=Authority.REPORTED,
        source="the agent, when it opened the thread",
        refs=("frames.jsonl:2", "frames.jsonl:7"),
    )
    # Another source of the same: a file that the agent keeps.
    seen = Fact(value={"effective": "tiny"}, authority=Authority.OBSERVED, source="rollout")
    kept = folded(asked, began(model="medium"), stated(model=seen))["model"]
    assert (kept.value["effective"], kept.authority) == ("tiny", "observed")
    assert [conflict.value for conflict in kept.conflicts] == ["medium"]


@pytest.mark.requirement("runtime.usage")
def test_usage_names_its_scope_basis_authority_and_check_and_none_is_not_zero() -> None:
    assert folded()["usage"] == Fact(value={"authority": "none"}, authority=Authority.UNKNOWN, source="not reported")
    turn = TurnBegan(turn=TurnId("t"), frame=1, at_ms=1)
    exact = UsageReported(
        tokens=Tokens(input=9, output=0, total=9),
        scope="call",
        basis="delta",
        authority=UsageAuthority.PROVIDER_RESPONSE,
        frame=3,
        at_ms=1,
    )
    value = {"totalTokens": 9, "scope": "turn", "basis": "delta", "authority": "provider-response", "check": "equal"}
    assert folded(turn, total(9, frame=2), exact)["usage"].value == value
    assert folded(turn, total(8, frame=2), exact)["usage"].value == {**value, "check": "divergent"}
    later = (
        TurnBegan(turn=TurnId("u"), frame=4, at_ms=1),
        total(21, frame=5),
        msgspec.structs.replace(exact, frame=6),
    )
    both = folded(turn, total(9, frame=2), exact, *later)["usage"].value
    assert (both["scope"], both["totalTokens"], both["check"]) == ("session", 18, "divergent")
    alone = folded(turn, total(8, frame=2))["usage"].value
    assert alone == {**value, "totalTokens": 8, "basis": "cumulative", "authority": "live-thread-usage", "check": None}


@pytest.mark.requirement("runtime.warnings")
def test_warnings_are_counted_by_source_and_channel_and_the_inferred_apart() -> None:
    def warned(source: Any, channel: str, rule: str | None = None) -> WarningRaised:
        return WarningRaised(source=source, text="x", channel=channel, rule=rule, frame=1, at_ms=1)

    facts = folded(
        warned("process", "stderr"), warned("process", "stderr", "codex.shell-snapshot/1"), warned("thread", "warning")
    )
    assert facts["warnings"].value == {
        "total": 3,
        "bySource": {"process": 2, "thread": 1},
        "byChannel": {"stderr": 2, "warning": 1},
        "inferred": 1,
    }


@pytest.mark.requirement("runtime.identity")
@pytest.mark.parametrize(
    ("identity", "version", "agree", "authority"),
    [
        ({"version": "codex-cli 0.163.0", "packageVersion": "0.163.0"}, "0.163.0", True, "verified"),
        ({"version": "codex-cli 0.163.0", "packageVersion": "0.163.0"}, "0.166.0", False, "reported"),
        ({"version": "codex-cli 0.162.0", "packageVersion": "0.163.0"}, "0.163.0", False, "reported"),
        ({}, "0.163.0", None, "reported"),
    ],
)
def test_versions_agree_or_are_said_not_to(
    identity: dict[str, str], version: str, agree: bool | None, authority: str
) -> None:
    reported = Fact(value=version, authority=Authority.REPORTED, source="handshake")
    fact = folded(stated(identity=declared(identity), version=reported))["versions"]
    names = {"version": "--version", "packageVersion": "package"}
    told = {names[name]: value for name, value in identity.items()}
    assert fact.value == {**told, "handshake": version, "agree": agree}
    assert fact.authority == authority
    assert folded(stated(identity=declared({})))["versions"] == UNKNOWN
