"""Trace and transcript: pure folds of events that lose nothing and look at no later event."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given

from proctor.event.model import (
    CompactionBegan,
    CompactionEnded,
    Event,
    FrameNoted,
    ReasoningSaid,
    ReasoningStreamed,
    SessionBegan,
    TextSaid,
    TextStreamed,
    ToolBegan,
    ToolEnded,
    Unrecognized,
)
from proctor.event.outcome import Ending, Outcome
from proctor.event.trace import ToolCall, TraceFold
from proctor.event.transcript import Line, TranscriptFold
from proctor.ids import AttemptId, CallId, ItemId, RuntimeId, ThreadId, TurnId
from tests.event.streams import streams, streams_of

A1, T1, C1, I1 = AttemptId("fix.native.r1.1"), TurnId("t1"), CallId("c1"), ItemId("i1")
ENDED = Ending(outcome=Outcome.STALLED, code="limit.stall")


def traced(events: Iterable[Event]) -> tuple[list[ToolCall], list[ToolCall]]:
    """The rows as they arise, and those at the end."""
    fold = TraceFold(A1)
    rows = [row for event in events if (row := fold.feed(event)) is not None]
    return rows, fold.finish()


def transcribed(events: Iterable[Event]) -> tuple[list[Line], list[Line]]:
    fold = TranscriptFold(RuntimeId("r"))
    rows = [row for event in events if (row := fold.feed(event)) is not None]
    return rows, list(fold.finish(ENDED, summary="the sum", facts={}))


@pytest.mark.requirement("runtime.events.pure")
@given(streams)
def test_what_was_told_of_a_beginning_is_a_beginning_of_what_is_told_of_the_whole(events: list[Event]) -> None:
    """So a record that was cut off derives to a beginning of the derived files."""
    for end in range(len(events) + 1):
        calls, lines = traced(events[:end])[0], transcribed(events[:end])[0]
        assert traced(events)[0][: len(calls)] == calls
        assert transcribed(events)[0][: len(lines)] == lines


@pytest.mark.requirement("runtime.events.pure")
@given(streams)
def test_the_same_events_give_the_same_bytes(events: list[Event]) -> None:
    again = msgspec.json.decode(msgspec.json.encode(events), type=list[Event])
    assert msgspec.json.encode([traced(again), transcribed(again)]) == msgspec.json.encode(
        [traced(events), transcribed(events)]
    )


@given(streams_of(ToolBegan, ToolEnded))
def test_every_call_that_ended_has_a_row_and_every_other_is_told_as_unfinished(events: list[Event]) -> None:
    ended, unfinished = traced(events)
    still_open: dict[str, ToolBegan] = {}
    for event in events:
        if isinstance(event, ToolBegan):
            still_open[event.call] = event
        elif isinstance(event, ToolEnded):
            still_open.pop(event.call, None)

    assert [row.ended_frame for row in ended] == [event.frame for event in events if isinstance(event, ToolEnded)]
    assert [(row.call, row.ok, row.status, row.began_frame) for row in unfinished] == [
        (call, None, "unfinished", began.frame) for call, began in still_open.items()
    ]


def test_a_call_is_told_with_both_its_ends() -> None:
    began = ToolBegan(turn=T1, call=C1, kind="command", name="shell", input={"command": "ls"}, frame=3, at_ms=100)
    done = ToolEnded(
        turn=T1,
        call=C1,
        kind="command",
        name="shell",
        ok=False,
        status="failed",
        exit_code=2,
        output="é",
        frame=7,
        at_ms=350,
    )
    row = ToolCall(
        attempt=A1,
        session=None,
        call=C1,
        turn=T1,
        kind="command",
        name="shell",
        input={"command": "ls"},
        ok=False,
        status="failed",
        began_at_ms=100,
        ended_at_ms=350,
        duration_ms=250,
        exit_code=2,
        output="é",
        output_bytes=2,
        began_frame=3,
        ended_frame=7,
    )
    assert traced([began, done]) == ([row], [])
    own_clock = msgspec.structs.replace(done, duration_ms=9)
    assert traced([began, own_clock]) == ([msgspec.structs.replace(row, duration_ms=9)], [])


@pytest.mark.requirement("evidence.trace")
def test_trace_rows_name_the_session_that_has_begun() -> None:
    def began(call: str) -> ToolBegan:
        return ToolBegan(turn=T1, call=CallId(call), kind="command", name="shell", frame=3, at_ms=100)

    def ended(call: str) -> ToolEnded:
        return ToolEnded(
            turn=T1, call=CallId(call), kind="command", name="shell", ok=True, status="done", frame=4, at_ms=100
        )

    session = SessionBegan(thread=ThreadId("019a"), frame=3, at_ms=100)
    rows, unfinished = traced([began("a"), ended("a"), session, began("b"), ended("b"), began("c")])
    assert [(row.call, row.attempt, row.session) for row in [*rows, *unfinished]] == [
        ("a", A1, None),
        ("b", A1, f"{A1}/019a"),
        ("c", A1, f"{A1}/019a"),
    ]


@given(streams_of(TextStreamed, TextSaid, ReasoningStreamed, ReasoningSaid))
def test_a_message_is_told_once_whole_or_at_the_end_as_a_draft(events: list[Event]) -> None:
    said, (*drafts, summary) = transcribed(events)
    pending: dict[str, str] = {}
    for event in events:
        if isinstance(event, TextStreamed | ReasoningStreamed):
            pending[event.item] = pending.get(event.item, "") + event.text
        elif isinstance(event, TextSaid | ReasoningSaid):
            pending.pop(event.item, None)

    assert [line.text for line in said] == [
        event.text for event in events if isinstance(event, TextSaid | ReasoningSaid)
    ]
    assert not any(line.partial for line in said)
    assert [line.text for line in drafts] == list(pending.values())
    assert all(line.partial for line in drafts)
    last = events[-1].frame if events else 0
    assert summary == Line(
        kind="summary",
        at_ms=10 * last,
        frame=last,
        text="the sum",
        status="stalled",
        source="limit.stall",
        facts={"thread": None},
    )


def test_what_we_do_not_know_is_told_and_what_says_nothing_is_not() -> None:
    lines, _ = transcribed(
        [Unrecognized(native="thread/new", frame=1, at_ms=5), FrameNoted(native="x", frame=2, at_ms=6)]
    )
    assert lines == [Line(kind="note", at_ms=5, frame=1, text="unrecognized frame: thread/new")]


@pytest.mark.requirement("context.compaction")
@pytest.mark.parametrize("owns", [False, True])
def test_compaction_row_has_backend_owner_and_tokens(owns: bool) -> None:
    fold = TranscriptFold(RuntimeId("r"), owns_compaction=owns)
    begin = fold.feed(CompactionBegan(trigger="auto", frame=1, at_ms=5))
    end = fold.feed(CompactionEnded(trigger="auto", ok=True, tokens_before=90, keeps="user-messages", frame=2, at_ms=6))
    both = {"backend": "r", "ownsCompaction": owns, "trigger": "auto", "tokensAfter": None}
    assert [begin, end] == [
        Line(
            kind="compaction",
            at_ms=5,
            frame=1,
            text="compaction by the agent began",
            source="r",
            status="began",
            facts={**both, "phase": "began", "tokensBefore": None},
        ),
        Line(
            kind="compaction",
            at_ms=6,
            frame=2,
            text="compaction by the agent ended",
            source="r",
            status="ended",
            facts={**both, "phase": "ended", "tokensBefore": 90},
        ),
    ]


@pytest.mark.requirement("context.compaction")
def test_compaction_row_of_a_failure_says_so_and_keeps_unknown_tokens_unknown() -> None:
    row = TranscriptFold(RuntimeId("r")).feed(CompactionEnded(ok=False, keeps="nothing", frame=1, at_ms=0))
    assert row is not None
    assert (row.status, row.text) == ("failed", "compaction by the agent failed")
    assert (row.facts or {})["tokensBefore"] is None
