"""A turn's tokens are never its thread's: differences, sums, and unknown if it is not known where it began."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.model import (
    Event,
    SessionBegan,
    Tokens,
    TurnBegan,
    UsageAuthority,
    UsageBasis,
    UsageReported,
    UsageScope,
)
from proctor.event.usage import TurnUsage, Usage, UsageFold
from proctor.ids import ThreadId, TurnId
from tests.event.streams import streams, total


def folded(*events: Event) -> Usage | None:
    fold = UsageFold()
    for event in events:
        fold.feed(event)
    return fold.finish()


def began(turn: str) -> TurnBegan:
    return TurnBegan(turn=TurnId(turn), frame=1, at_ms=0)


def said(
    tokens: int, authority: UsageAuthority, *, scope: UsageScope, basis: UsageBasis, turn: str | None = None
) -> UsageReported:
    return UsageReported(
        tokens=Tokens(input=tokens, output=0, total=tokens),
        scope=scope,
        basis=basis,
        authority=authority,
        turn=None if turn is None else TurnId(turn),
        frame=1,
        at_ms=0,
    )


RESUMED = SessionBegan(thread=ThreadId("th"), is_resumed=True, frame=1, at_ms=0)


def of_turns(usage: Usage | None) -> list[int | None]:
    assert usage is not None
    return [None if each.tokens is None else each.tokens.total for each in usage.turns]


@pytest.mark.requirement("runtime.usage")
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6), st.integers(0, 1000))
def test_each_turns_tokens_are_the_difference_of_the_totals_around_it(spent: list[int], before: int) -> None:
    events: list[Event] = [RESUMED, total(before, frame=1)]
    sums = [before + sum(spent[: at + 1]) for at in range(len(spent))]
    for at, so_far in enumerate(sums):
        events += [began(f"t{at}"), total(so_far, frame=1)]
    usage = folded(*events)
    assert of_turns(usage) == spent
    assert usage is not None
    assert usage.tokens is not None
    assert (usage.tokens.total, usage.scope) == (sum(spent), "turn" if len(spent) == 1 else "session")


@pytest.mark.requirement("runtime.usage")
def test_the_first_turn_of_a_resumed_thread_is_unknown_and_the_next_is_not() -> None:
    usage = folded(RESUMED, began("a"), total(300, frame=1), began("b"), total(400, frame=1))
    assert of_turns(usage) == [None, 100]
    assert usage is not None
    assert usage.tokens is None


def test_what_a_thread_had_before_is_not_spent_again() -> None:
    restored = said(200, UsageAuthority.RESTORED_ON_RESUME, scope="thread", basis="cumulative")
    assert of_turns(folded(RESUMED, restored, began("a"), restored, total(300, frame=1))) == [100]
    assert folded(RESUMED, restored, began("a")) is None


def test_a_turn_that_nobody_spoke_of_makes_the_sum_unknown() -> None:
    usage = folded(began("a"), total(100, frame=1), began("b"))
    assert of_turns(usage) == [100, None]
    assert usage is not None
    assert (usage.tokens, usage.authority) == (None, UsageAuthority.NONE)


def test_a_total_that_shrank_says_nothing_of_the_turn() -> None:
    assert of_turns(folded(began("a"), total(100, frame=1), began("b"), total(40, frame=1))) == [100, None]


def test_calls_are_added_up_and_what_a_turn_says_of_itself_stands() -> None:
    call = UsageAuthority.PROVIDER_RESPONSE
    calls = [said(each, call, scope="call", basis="delta") for each in (3, 4)]
    assert of_turns(folded(began("a"), *calls)) == [7]
    whole = [said(each, UsageAuthority.LIVE_TURN_COMPLETED, scope="turn", basis="absolute") for each in (3, 4)]
    assert of_turns(folded(began("a"), *whole)) == [4]


@pytest.mark.parametrize(("live", "check"), [(100, "equal"), (90, "divergent")])
def test_the_stronger_word_holds_and_the_weaker_one_is_compared_with_it(live: int, check: str) -> None:
    record = said(100, UsageAuthority.ROLLOUT_RECORD, scope="turn", basis="absolute", turn="a")
    usage = folded(began("a"), record, total(live, frame=1))
    assert usage is not None
    assert usage.turns == (
        TurnUsage(
            turn=TurnId("a"),
            tokens=record.tokens,
            basis="absolute",
            authority=UsageAuthority.ROLLOUT_RECORD,
            check="equal" if check == "equal" else "divergent",
        ),
    )


@given(streams)
def test_without_a_report_usage_is_unknown_never_nought(events: list[Event]) -> None:
    silent = [event for event in events if not isinstance(event, UsageReported)]
    assert folded(*silent) is None


def test_a_part_that_nobody_reported_stays_unknown() -> None:
    usage = folded(began("a"), total(5, frame=1))
    assert usage is not None
    assert usage.tokens is not None
    assert usage.tokens.cached_input is None
