"""Frames into events, and nothing lost on the way, whatever the frame."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.laws import Laws
from proctor.event.model import (
    ErrorReported,
    Event,
    FactsStated,
    FrameNoted,
    ProcessExited,
    RequestSent,
    SessionBegan,
    StatusChanged,
    TextSaid,
    TextStreamed,
    Tokens,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    UsageReported,
    WarningRaised,
)
from proctor.event.row import GENESIS, ChildExited, Direction, Row, StepTaken, SupervisorRow, TailReleased
from proctor.runtime.claude_code.normalize import STARTED, ClaudeNormalizer
from proctor.runtime.claude_code.turns import Turns

Said = tuple[Direction, Any]


def events_of(said: Sequence[Said]) -> list[Event]:
    normalizer = ClaudeNormalizer()
    found: list[Event] = []
    for seq, (dir_, frame) in enumerate(said, start=1):
        if isinstance(frame, str):
            row = Row(seq=seq, at_ms=0, dir=dir_, prev=GENESIS, text=frame)
        else:
            row = Row(seq=seq, at_ms=0, dir=dir_, prev=GENESIS, frame=msgspec.Raw(msgspec.json.encode(frame)))
        given_by = list(normalizer.feed(row))
        assert given_by, f"nothing came of {frame}"
        assert {event.frame for event in given_by} == {seq}
        found += given_by
    return found


def of(events: Sequence[Event], *kinds: type[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kinds)]


def prompt(uuid: str = "u1") -> Said:
    return Direction.OUT, {
        "type": "user",
        "message": {"role": "user", "content": [{"type": "text", "text": "Go"}]},
        "uuid": uuid,
    }


def gives(uuid: str, role: str = "user") -> Said:
    query = {"shouldQuery": False} if role == "user" else {}
    message = {"role": role, "content": [{"type": "text", "text": "Earlier"}]}
    return Direction.OUT, {"type": role, "message": message, "uuid": uuid, **query}


def state(uuid: str, name: str) -> Said:
    return heard("command_lifecycle", command_uuid=uuid, state=name)


def heard(type_: str, **fields: Any) -> Said:
    return Direction.IN, {"type": type_, **fields}


def says(*blocks: dict[str, Any], id_: str = "m", **fields: Any) -> Said:
    return heard("assistant", message={"id": id_, "model": "x", "content": list(blocks)}, **fields)


def result(**fields: Any) -> Said:
    return heard("result", **{"subtype": "success", "is_error": False, "terminal_reason": "completed", **fields})


def usage(plain: int, *, read: int = 0, written: int = 0, output: int = 0) -> dict[str, int]:
    return {
        "input_tokens": plain,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": output,
    }


INIT = heard("system", subtype="init", session_id="s", model="x", cwd="/w")


def test_a_session_begins_once_and_says_how_it_was_started() -> None:
    step = StepTaken(step=STARTED, detail={"ephemeral": False, "resumed": True})
    events = events_of([(Direction.SELF, step), prompt(), INIT, INIT])
    (began,) = of(events, SessionBegan)
    assert isinstance(began, SessionBegan)
    assert (began.thread, began.ephemeral, began.is_resumed) == ("s", False, True)
    assert [event.frame for event in of(events, TurnBegan)] == [3]


def test_given_messages_are_neither_prompts_nor_turns() -> None:
    zero = {"num_turns": 0, "result": "", "usage": usage(0)}
    events = events_of(
        [
            gives("g1"),
            state("g1", "queued"),
            state("g1", "started"),
            INIT,
            result(**zero),
            state("g1", "completed"),
            gives("g2", "assistant"),
            state("g2", "completed"),
        ]
    )
    assert [type(event) for event in events if not isinstance(event, FrameNoted)] == [
        RequestSent,
        SessionBegan,
        FactsStated,
        RequestSent,
    ]
    assert [event.native for event in events if isinstance(event, FrameNoted)] == [
        "message queued",
        "message started",
        "result of a given message",
        "message completed",
        "message completed",
    ]


def test_late_result_of_a_given_message_ends_no_turn() -> None:
    told = [
        gives("g1"),
        prompt("u1"),
        state("g1", "started"),
        INIT,
        result(usage=usage(0)),
        state("g1", "completed"),
        state("u1", "started"),
        INIT,
        says({"type": "text", "text": "Done"}, uuid="a1"),
        result(usage=usage(10)),
    ]
    events = events_of(told)
    assert [(type(event), event.frame) for event in of(events, TurnBegan, UsageReported, TurnEnded)] == [
        (TurnBegan, 8),
        (UsageReported, 10),
        (TurnEnded, 10),
    ]


@pytest.mark.requirement("context.usage")
def test_cached_input_is_a_part_of_the_input_and_each_part_of_a_turn_counts() -> None:
    told = [prompt(), INIT, result(usage=usage(10, read=5, written=3, output=2))]
    (used,) = of(events_of(told), UsageReported)
    assert isinstance(used, UsageReported)
    assert used.tokens == Tokens(input=18, output=2, total=20, cached_input=5, cache_write=3, reasoning_output=None)
    silent = {"input_tokens": 10, "output_tokens": 2}
    (used,) = of(events_of([prompt(), INIT, result(usage=silent)]), UsageReported)
    assert isinstance(used, UsageReported)
    assert (used.tokens.cached_input, used.tokens.cache_write) == (None, None), "what it does not report is not 0"
    state = {"command_uuid": "u2"}
    told = [
        prompt(),
        INIT,
        prompt("u2"),
        heard("command_lifecycle", **state, state="queued"),
        result(usage=usage(10)),
        heard("command_lifecycle", **state, state="started"),
        result(usage=usage(7)),
        heard("command_lifecycle", **state, state="completed"),
    ]
    events = events_of(told)
    (used,) = of(events, UsageReported)
    assert isinstance(used, UsageReported)
    assert (used.tokens.total, used.turn) == (17, "u1")
    assert [event.frame for event in of(events, TurnEnded)] == [8]


@pytest.mark.parametrize(
    ("ended", "status", "code"),
    [
        (
            {"terminal_reason": "aborted_streaming", "subtype": "error_during_execution", "is_error": True},
            "interrupted",
            None,
        ),
        (
            {"is_error": True, "api_error_status": 401, "terminal_reason": "api_error"},
            "failed",
            "provider.unauthorized",
        ),
        ({"subtype": "error_max_turns", "is_error": True, "terminal_reason": "max_turns"}, "failed", "agent.budget"),
        ({"subtype": "error_during_execution", "errors": ["odd"]}, "failed", "agent.turn-failed"),
    ],
)
def test_a_result_is_what_it_says_whatever_it_is_called_and_its_noughts_are_unknown(
    ended: dict[str, Any], status: str, code: str | None
) -> None:
    events = events_of([prompt(), result(**ended, usage=usage(0))])
    (end,) = of(events, TurnEnded)
    assert isinstance(end, TurnEnded)
    assert (end.turn, end.status, end.code) == ("u1", status, code)
    if ended.get("is_error"):
        assert of(events, UsageReported) == []


def test_only_the_agents_own_words_are_its_words() -> None:
    text = {"type": "text", "text": "a"}
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    told = [
        prompt(),
        INIT,
        says(text, id_="m1"),
        says(text, id_="m2", parent_tool_use_id="p"),
        says(call, id_="m2", parent_tool_use_id="p"),
        heard("user", message={"content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}),
        heard("user", message={"content": "[Request interrupted by user]"}, isSynthetic=True),
        says(text, id_="m3", error="rate_limit", api_error_status=429),
        (Direction.IN, {"type": "assistant", "message": {"id": "m4", "model": "<synthetic>", "content": [text]}}),
    ]
    events = events_of(told)
    assert [event.frame for event in of(events, TextSaid)] == [3]
    assert [event.frame for event in of(events, ToolBegan, ToolEnded)] == [5, 6]
    (error,) = of(events, ErrorReported)
    assert isinstance(error, ErrorReported)
    assert (error.error_class, error.will_retry) == ("rate_limit:429", False)


def test_a_call_that_only_the_hook_tells_of_is_told() -> None:
    hook = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "t"}
    asks = heard("control_request", request_id="r", request={"subtype": "hook_callback", "input": hook})
    gives = heard("user", message={"content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]})
    events = events_of([prompt(), INIT, asks, asks, gives])
    assert [(event.name, event.frame) for event in events if isinstance(event, ToolBegan | ToolEnded)] == [
        ("Bash", 3),
        ("Bash", 5),
    ]
    odd = heard("control_request", request_id="r", request={"subtype": "hook_callback", "input": 7})
    assert [type(event) for event in events_of([odd])] == [Unrecognized]


def test_what_is_said_twice_is_told_once() -> None:
    again = says({"type": "text", "text": "a"}, uuid="x")
    done = result(uuid="y", structured_output={}, result="{}")
    events = events_of([prompt(), INIT, again, again, done, done])
    assert [event.frame for event in of(events, TextSaid, TurnEnded)] == [3, 5, 5]


def test_what_redaction_held_back_is_told_at_its_place() -> None:
    delta = {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "my se"}}
    told: list[Said] = [
        prompt(),
        heard("stream_event", event=delta, api_message_id="m"),
        (Direction.SELF, TailReleased(stream="m|2|text", text="cond")),
    ]
    pieces = [(event.item, event.text) for event in events_of(told) if isinstance(event, TextStreamed)]
    assert pieces == [("m/2", "my se"), ("m/2", "cond")]


def test_the_rest_is_told_too() -> None:
    exited: SupervisorRow = ChildExited(code=1)
    told: list[Said] = [
        (Direction.ERR, "trouble"),
        (Direction.SELF, exited),
        heard("system", subtype="status", status="requesting"),
        heard("system", subtype="permission_denied", tool_name="Bash"),
        heard("system", subtype="task_started"),
        heard("system", subtype="of_tomorrow"),
        heard("rate_limit_event"),
        (Direction.IN, "not JSON"),
        (Direction.IN, [1]),
        result(),
    ]
    kinds = [WarningRaised, ProcessExited, StatusChanged, WarningRaised, FrameNoted, Unrecognized, FrameNoted]
    assert [type(event) for event in events_of(told)] == [*kinds, Unrecognized, Unrecognized, FrameNoted]


TYPES = st.sampled_from(
    "assistant user result stream_event system control_request control_response command_lifecycle x".split()
)


def test_how_long_it_waits_before_it_tries_again_comes_with_the_error() -> None:
    retry = {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 4}
    limited = {**retry, "retry_delay_ms": 2198.7, "error_status": 429, "error": "rate_limit"}
    assert events_of([(Direction.IN, limited)]) == [
        ErrorReported(
            text="rate_limit:429: trying again (1 of 4)",
            error_class="rate_limit:429",
            will_retry=True,
            code="provider.rate-limited",
            retry_after_ms=2198,
            frame=1,
            at_ms=0,
        )
    ]
    [strange] = events_of([(Direction.IN, {**limited, "retry_delay_ms": 1e300})])
    assert isinstance(strange, Unrecognized)


BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "tool_use", "tool_result", "web_search_tool_result"])},
    optional={
        "id": st.sampled_from(["a", "b"]),
        "tool_use_id": st.sampled_from(["a", "b"]),
        "name": st.sampled_from(["Bash", "Write", "mcp__a__b"]),
        "input": st.none() | st.dictionaries(st.text(max_size=3), st.integers()),
        "content": st.text(max_size=5) | st.lists(st.integers(), max_size=2),
        "is_error": st.booleans(),
    },
)
FRAMES = st.fixed_dictionaries(
    {"type": TYPES},
    optional={
        "subtype": st.sampled_from(["init", "status", "api_retry", "success", "x"]),
        "session_id": st.just("s"),
        "uuid": st.sampled_from(["u1", "u2"]),
        "command_uuid": st.sampled_from(["u1", "u2"]),
        "state": st.sampled_from(["queued", "started", "completed"]),
        "message": st.fixed_dictionaries({}, optional={"id": st.just("m"), "content": st.lists(BLOCKS, max_size=3)}),
        "event": st.fixed_dictionaries({"type": st.just("content_block_delta")}) | st.integers(),
        "request_id": st.sampled_from(["r", "q"]),
        "request": st.fixed_dictionaries({"subtype": st.sampled_from(["can_use_tool", "hook_callback", "x"])}),
        "response": st.fixed_dictionaries({"request_id": st.just("r")}) | st.text(max_size=2),
    },
)


@given(st.lists(st.tuples(st.sampled_from([Direction.IN, Direction.IN, Direction.OUT]), FRAMES), max_size=12))
def test_no_frame_is_lost_and_no_stream_breaks_a_law(said: list[Said]) -> None:
    # Two turns that we began with the same name would be a fault of ours.
    ours = [frame for dir_, frame in said if dir_ is Direction.OUT and frame["type"] == "user"]
    for number, frame in enumerate(ours):
        frame["uuid"] = f"ours-{number}"
    laws = Laws()
    assert [law for event in events_of(said) if (law := laws.feed(event)) is not None] == []


@given(st.lists(st.sampled_from(["say", "result", "queued", "started", "completed"]), max_size=30))
def test_a_turn_is_over_once_and_only_when_all_that_was_said_is_dealt_with(deeds: list[str]) -> None:
    turns, began, over = Turns(), 0, 0
    said: list[str] = []
    for deed in deeds:
        was_running = turns.current is not None
        if deed == "say":
            said.append(f"m{len(said)}")
            began += turns.said(said[-1])
            continue
        is_over = turns.heard_result() if deed == "result" else turns.heard_state(said[-1] if said else "", deed)
        assert not is_over or was_running
        assert (turns.current is None) == (is_over or not was_running)
        over += is_over
    assert began - over == (turns.current is not None)
