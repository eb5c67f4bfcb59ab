"""Streams of events for properties: any events in any order, on frames that go up."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from proctor.event.history_item import HistoryCall
from proctor.event.model import (
    ApprovalAsked,
    ApprovalResolved,
    Cancelled,
    ClockFired,
    CompactionBegan,
    CompactionEnded,
    ErrorReported,
    Event,
    FactsStated,
    FrameNoted,
    HistoryGiven,
    HistoryOffered,
    HistoryRead,
    ModelRerouted,
    NoteMade,
    ProcessExited,
    PromptSent,
    ReasoningSaid,
    ReasoningStreamed,
    ReplyReceived,
    RequestSent,
    SessionBegan,
    SessionRefused,
    StatusChanged,
    StreamEnded,
    TextSaid,
    TextStreamed,
    Tokens,
    ToolBegan,
    ToolEnded,
    ToolStreamed,
    TurnAsked,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    UsageAuthority,
    UsageReported,
    WarningRaised,
)
from proctor.fact import Authority, Fact
from proctor.ids import TurnId

TERMINAL = (TurnEnded, ClockFired, Cancelled, SessionRefused, StreamEnded, ProcessExited)

_KINDS = (
    SessionBegan,
    StatusChanged,
    ModelRerouted,
    StreamEnded,
    ProcessExited,
    PromptSent,
    TurnAsked,
    TurnBegan,
    TurnEnded,
    TextStreamed,
    TextSaid,
    ReasoningStreamed,
    ReasoningSaid,
    ToolBegan,
    ToolStreamed,
    ToolEnded,
    ApprovalAsked,
    ApprovalResolved,
    CompactionBegan,
    CompactionEnded,
    UsageReported,
    WarningRaised,
    ErrorReported,
    ClockFired,
    Cancelled,
    SessionRefused,
    FactsStated,
    HistoryRead,
    HistoryOffered,
    HistoryGiven,
    NoteMade,
    ReplyReceived,
    RequestSent,
    FrameNoted,
    Unrecognized,
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ids = st.sampled_from(["a", "b", "c"])
counts = st.integers(0, 1_000)
tokens = st.builds(Tokens, input=counts, output=counts, total=counts, cached_input=st.none() | counts)

# No strategy can be inferred for an input of any type.
st.register_type_strategy(HistoryCall, st.builds(HistoryCall, kind=st.just("command"), input=words, output=words))

_BY_FIELD: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("turn", "item", "call", "thread", "request"), ids),
    "frame": st.just(0),
    "at_ms": st.just(0),
    "input": st.none() | st.dictionaries(words, words, max_size=2),
    **dict.fromkeys(("output", "error"), st.none() | words),
    "tokens": tokens,
    "facts": st.dictionaries(ids, st.builds(Fact, value=words, authority=st.sampled_from(Authority), source=words)),
}


def _of(kind: type[Any]) -> st.SearchStrategy[Event]:
    fields = msgspec.structs.fields(kind)
    chosen = {field.name: _BY_FIELD[field.name] for field in fields if field.name in _BY_FIELD}
    chosen |= {field.name: words for field in fields if field.type is str and field.name not in chosen}
    return st.builds(kind, **chosen)


def streams_of(*kinds: type[Any], max_size: int = 20) -> st.SearchStrategy[list[Event]]:
    """Events of these kinds, each from a frame of its own."""

    def number(events: list[Event]) -> list[Event]:
        return [msgspec.structs.replace(event, frame=at, at_ms=10 * at) for at, event in enumerate(events, 1)]

    return st.lists(st.one_of([_of(kind) for kind in kinds or _KINDS]), max_size=max_size).map(number)


streams = streams_of()


def total(tokens: int, *, frame: int, turn: str | None = None) -> UsageReported:
    """A thread's total so far."""
    return UsageReported(
        tokens=Tokens(input=tokens, output=0, total=tokens),
        scope="thread",
        basis="cumulative",
        authority=UsageAuthority.LIVE_THREAD_USAGE,
        turn=None if turn is None else TurnId(turn),
        frame=frame,
        at_ms=0,
    )
