"""What lines of `codex exec --json` mean, in whatever order and shape they come."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.event.laws import Laws
from proctor.event.model import (
    ErrorReported,
    Event,
    FrameNoted,
    ProcessExited,
    PromptSent,
    SessionBegan,
    TextSaid,
    Tokens,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    UsageAuthority,
    UsageReported,
    WarningRaised,
)
from proctor.event.row import GENESIS, ChildExited, Direction, Row, StepTaken, SupervisorRow
from proctor.ids import CallId, ItemId, ThreadId, TurnId
from proctor.runtime.codex_exec import steps
from proctor.runtime.codex_exec.normalize import ExecNormalizer
from proctor.runtime.codex_exec.vocabulary import WORDS
from proctor.runtime.stderr_lines import StderrLines

ONE = TurnId("turn-1")
USAGE = {"input_tokens": 80, "cached_input_tokens": 30, "output_tokens": 20, "reasoning_output_tokens": 5}
HUNDRED = Tokens(input=80, output=20, total=100, cached_input=30, reasoning_output=5)


def started(how: str = "start") -> StepTaken:
    return StepTaken(step=steps.STARTED, detail={"how": how, "argv": []})


def told(*said: dict[str, Any] | SupervisorRow | tuple[Direction, str]) -> list[Event]:
    """The events of a record, numbered from 1."""
    normalizer = ExecNormalizer()
    rows = [Row(seq=seq, at_ms=0, prev=GENESIS, **_spoken(each)) for seq, each in enumerate(said, start=1)]
    return [event for row in rows for event in normalizer.feed(row)]


def _spoken(said: dict[str, Any] | SupervisorRow | tuple[Direction, str]) -> dict[str, Any]:
    if isinstance(said, tuple):
        return {"dir": said[0], "text": said[1]}
    return {
        "dir": Direction.SELF if isinstance(said, SupervisorRow) else Direction.IN,
        "frame": msgspec.Raw(msgspec.json.encode(said)),
    }


def item(type_: str, **fields: Any) -> dict[str, Any]:
    return {"type": type_, "item": {"id": "item_0", **fields}}


def test_a_turn_of_a_thread_that_goes_on_is_told_with_where_the_thread_stood() -> None:
    command = {"type": "command_execution", "command": "ls"}
    events = told(
        started("resume"),
        steps.usage_step(steps.USAGE_BEFORE, HUNDRED),
        (Direction.OUT, "Go on."),
        {"type": "thread.started", "thread_id": "t"},
        {"type": "turn.started"},
        item("item.started", **command, status="in_progress"),
        item("item.completed", **command, status="failed", exit_code=2, aggregated_output="no\n"),
        {"type": "turn.completed", "usage": {**USAGE, "input_tokens": 180}},
        ChildExited(code=0, is_turns_own=True),
        steps.usage_step(steps.TURN_USAGE, HUNDRED),
    )
    twice = Tokens(input=180, output=20, total=200, cached_input=30, reasoning_output=5)
    restored, live = UsageAuthority.RESTORED_ON_RESUME, UsageAuthority.LIVE_TURN_COMPLETED
    call = CallId("turn-1/item_0")
    shell: dict[str, Any] = {"kind": "command", "name": "shell", "input": {"command": "ls"}}
    assert events == [
        FrameNoted(native=steps.STARTED, frame=1, at_ms=0),
        FrameNoted(native=steps.USAGE_BEFORE, frame=2, at_ms=0),
        PromptSent(text="Go on.", frame=3, at_ms=0),
        SessionBegan(thread=ThreadId("t"), is_resumed=True, frame=4, at_ms=0),
        UsageReported(tokens=HUNDRED, scope="thread", basis="cumulative", authority=restored, frame=4, at_ms=0),
        TurnBegan(turn=ONE, frame=5, at_ms=0),
        ToolBegan(turn=ONE, call=call, frame=6, at_ms=0, **shell),
        ToolEnded(
            turn=ONE, call=call, ok=False, status="failed", exit_code=2, output="no\n", frame=7, at_ms=0, **shell
        ),
        UsageReported(tokens=twice, scope="thread", basis="cumulative", authority=live, turn=ONE, frame=8, at_ms=0),
        TurnEnded(turn=ONE, status="completed", frame=8, at_ms=0),
        ProcessExited(code=0, is_turns_own=True, frame=9, at_ms=0),
        UsageReported(
            tokens=HUNDRED,
            scope="turn",
            basis="absolute",
            authority=UsageAuthority.ROLLOUT_RECORD,
            turn=ONE,
            frame=10,
            at_ms=0,
        ),
    ]


def test_where_a_thread_stood_is_told_before_its_turn_also_where_its_beginning_is_lost() -> None:
    events = told(started("resume"), steps.usage_step(steps.USAGE_BEFORE, HUNDRED), {"type": "turn.started"})
    assert [type(event) for event in events] == [FrameNoted, FrameNoted, UsageReported, TurnBegan]


def test_a_total_that_shrinks_is_believed_by_nobody() -> None:
    end = {"type": "turn.completed", "usage": USAGE}
    less = {"type": "turn.completed", "usage": {**USAGE, "input_tokens": 1}}
    events = told(started(), end, started("resume"), less)
    assert [event.tokens for event in events if isinstance(event, UsageReported)] == [HUNDRED]
    assert [event.turn for event in events if isinstance(event, TurnEnded)] == [ONE, TurnId("turn-2")]


def test_warnings_come_as_items_and_an_error_is_not_the_end() -> None:
    words = "Reconnecting... 1/2 (unexpected status 401 Unauthorized: no, url: u)"
    assert told(
        item("item.completed", type="error", message="odd"), {"type": "error", "message": words}, {"type": "error"}
    ) == [
        WarningRaised(source="thread", text="odd", channel="item error", frame=1, at_ms=0),
        ErrorReported(text=words, will_retry=True, code="provider.unauthorized", frame=2, at_ms=0),
        Unrecognized(native="error", frame=3, at_ms=0),
    ]
    words = "Reconnecting... waiting for network"
    assert told({"type": "error", "message": words}) == [
        ErrorReported(text=words, will_retry=True, code="provider.unreachable", frame=1, at_ms=0)
    ]


def test_items_of_two_turns_are_told_apart_and_what_is_repeated_is_no_news() -> None:
    said = item("item.completed", type="agent_message", text="Hi.")
    thread = {"type": "thread.started", "thread_id": "t"}
    end = {"type": "turn.failed", "error": {"message": "x"}}
    events = told(started(), thread, said, said, end, end, started("resume"), thread, said)
    assert [event for event in events if isinstance(event, SessionBegan | TextSaid | TurnEnded)] == [
        SessionBegan(thread=ThreadId("t"), frame=2, at_ms=0),
        TextSaid(turn=ONE, item=ItemId("turn-1/item_0"), text="Hi.", frame=3, at_ms=0),
        TurnEnded(turn=ONE, status="failed", error="x", code="agent.turn-failed", frame=5, at_ms=0),
        TextSaid(turn=TurnId("turn-2"), item=ItemId("turn-2/item_0"), text="Hi.", frame=9, at_ms=0),
    ]
    assert [event.native for event in events if isinstance(event, FrameNoted)] == [
        *(steps.STARTED, "repeated item.completed", "repeated turn.failed", steps.STARTED, "thread.started")
    ]


@pytest.mark.parametrize("end", [{"type": "turn.completed"}, {"type": "turn.completed", "usage": {"input_tokens": -1}}])
def test_a_turn_is_over_though_its_usage_is_of_no_shape_we_know(end: dict[str, Any]) -> None:
    assert told(started(), end)[1:] == [
        Unrecognized(native="usage of a turn", frame=2, at_ms=0),
        TurnEnded(turn=ONE, status="completed", frame=2, at_ms=0),
    ]


def test_a_process_that_ends_before_its_turn_was_halted_by_us_or_says_why_on_stderr() -> None:
    gone = ChildExited(code=1, is_turns_own=True)
    why = (Direction.ERR, "Error: thread/resume failed")
    exited = ProcessExited(code=1, is_turns_own=True, frame=3, at_ms=0)
    assert told(started(), StepTaken(step=steps.HALTED), gone)[2:] == [
        TurnEnded(turn=ONE, status="interrupted", frame=3, at_ms=0),
        exited,
    ]
    assert told(started(), why, gone)[1:] == [
        WarningRaised(source="process", text=why[1], channel="stderr", frame=2, at_ms=0),
        ErrorReported(text=why[1], will_retry=False, code="peer.refused", frame=3, at_ms=0),
        exited,
    ]
    assert told(started(), {"type": "turn.completed", "usage": USAGE}, why, gone)[-1] == msgspec.structs.replace(
        exited, frame=4
    )


# ── whatever comes ──

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORD = st.sampled_from(sorted(WORDS))
COUNTS = st.integers(0, 99)
LINES = st.fixed_dictionaries(
    {"type": WORD | st.text(max_size=8)},
    optional={
        "thread_id": st.sampled_from(["t", "u"]) | ANYTHING,
        "message": st.text(max_size=8) | ANYTHING,
        "usage": st.fixed_dictionaries({"input_tokens": COUNTS, "output_tokens": COUNTS}) | ANYTHING,
        "error": st.fixed_dictionaries({"message": st.text(max_size=4)}) | ANYTHING,
        "item": st.fixed_dictionaries({"id": st.sampled_from("ab"), "type": WORD}, optional={"status": WORD})
        | ANYTHING,
    },
)
TOKENS = st.builds(Tokens, input=COUNTS, output=COUNTS, total=COUNTS)
SEEN = st.one_of(
    st.builds(started, st.sampled_from(["start", "resume", "fork"])),
    st.builds(steps.usage_step, st.sampled_from([steps.USAGE_BEFORE, steps.TURN_USAGE]), TOKENS),
    st.builds(StepTaken, step=st.sampled_from([steps.HALTED, steps.USAGE_BEFORE, steps.TURN_USAGE, "other"])),
    st.builds(ChildExited, code=st.none() | st.integers(0, 2), is_turns_own=st.just(value=True)),
)
TEXT = st.tuples(st.sampled_from([Direction.IN, Direction.OUT, Direction.ERR]), st.text(max_size=20))


@pytest.mark.requirement("runtime.events.lossless")
@settings(max_examples=100)
@given(st.lists(LINES | SEEN | TEXT, max_size=14))
def test_whatever_stands_in_a_record_every_row_is_told_and_the_grammar_is_kept(said: list[Any]) -> None:
    events, laws = told(*said), Laws()
    assert [law for event in events if (law := laws.feed(event)) is not None] == []
    assert {event.frame for event in events} == set(range(1, len(said) + 1))


@settings(max_examples=50)
@given(st.binary(max_size=60))
def test_whatever_stands_on_stderr_is_a_warning_of_the_process(said: bytes) -> None:
    complaints = StderrLines()
    lines = [line.decode(errors="replace") for line in (*complaints.feed(said + b"\n"), *complaints.rest())]
    events = told(*[(Direction.ERR, line) for line in lines])
    assert [(type(event), event.source) for event in events if isinstance(event, WarningRaised)] == [
        (WarningRaised, "process") for _ in lines
    ]
