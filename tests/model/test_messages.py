"""The Messages wire: events a client can put together again, requests read whatever is in them."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import WireError
from proctor.model.messages import count_tokens, parse_request, render, render_error, render_unstreamed
from proctor.model.wire import (
    ContentPart,
    Failure,
    Item,
    Part,
    Pause,
    Reasoning,
    Reply,
    ReplyRequest,
    Text,
    Tokens,
    Tool,
    ToolCall,
)

TOKENS = Tokens(input=10, cached=4, output=7, reasoning=2)
BASH = Tool(name="Bash", properties={"command": {"type": "string"}})
ADD = Tool(name="add", namespace="mcp__kit", properties={})
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
PARTS: tuple[Part, ...] = (
    Reasoning(text="Hm."),
    Text(text="Hello", chunk_chars=3),
    Pause(delay_s=2),
    ToolCall(tool=BASH, payload='{"command":"ls"}'),
    ToolCall(tool=ADD, payload="{}"),
)
CONTENT = [
    {"type": "thinking", "thinking": "Hm.", "signature": "sig_9_0"},
    {"type": "text", "text": "Hello"},
    {"type": "tool_use", "id": "toolu_9_2", "name": "Bash", "input": {"command": "ls"}},
    {"type": "tool_use", "id": "toolu_9_3", "name": "mcp__kit__add", "input": {}},
]
USAGE = {
    "input_tokens": 6,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 4,
    "output_tokens": 7,
    "output_tokens_details": {"thinking_tokens": 2},
}
FIELDS = {"thinking_delta": "thinking", "signature_delta": "signature", "text_delta": "text"}


def reply(*parts: Part, failure: Failure | None = None) -> Reply:
    return Reply(serial="9", model="m", parts=parts, tokens=TOKENS, failure=failure)


def parse(events: Iterable[bytes | Pause]) -> list[dict[str, Any]]:
    """Events as a client reads them; the name of each must be its type."""
    found = []
    for event in events:
        if isinstance(event, Pause):
            continue
        name, data, *end = event.decode().split("\n")
        fields: dict[str, Any] = json.loads(data.removeprefix("data: "))
        assert (name, end) == (f"event: {fields['type']}", ["", ""])
        found.append(fields)
    return found


def put_together(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client has in the end."""
    message: dict[str, Any] = {}
    for event in events:
        match event:
            case {"type": "message_start"}:
                message = event["message"]
            case {"type": "content_block_start"}:
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
            case {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": text}}:
                message["content"][event["index"]]["input"] = json.loads(text)
            case {"type": "content_block_delta", "delta": delta}:
                field = FIELDS[delta["type"]]
                message["content"][event["index"]][field] += delta[field]
            case {"type": "message_delta"}:
                message |= event["delta"] | {"usage": event["usage"]}
    return message


def test_a_streamed_reply_and_a_whole_one_are_the_same_message() -> None:
    message = {
        "id": "msg_9",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": CONTENT,
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": USAGE,
    }
    events = parse(render(reply(*PARTS)))
    assert events[0]["message"]["usage"]["output_tokens"] == 1
    assert events[-1] == {"type": "message_stop"}
    assert put_together(events) == message
    pause, whole = render_unstreamed(reply(*PARTS))
    assert isinstance(whole, bytes)
    assert (pause, json.loads(whole)) == (Pause(delay_s=2), message)


def test_a_reply_without_a_call_ends_the_turn() -> None:
    assert put_together(parse(render(reply(Text(text="a")))))["stop_reason"] == "end_turn"


def test_a_failed_reply_ends_with_an_error_event() -> None:
    failure = Failure(code="overloaded_error", message="Overloaded")
    *_, stop, error = parse(render(reply(Text(text="a"), failure=failure)))
    assert stop["type"] == "content_block_stop"
    assert error == {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


@given(text=WORDS, chunk_chars=st.none() | st.integers(1, 50), repeat=st.integers(1, 4))
def test_the_pieces_of_a_text_are_the_text(text: str, chunk_chars: int | None, repeat: int) -> None:
    events = parse(render(reply(Text(text=text, chunk_chars=chunk_chars, repeat=repeat))))
    assert put_together(events)["content"] == [{"type": "text", "text": text * repeat}]
    deltas = [event for event in events if event["type"] == "content_block_delta"]
    assert len(deltas) == repeat * -(-len(text) // (chunk_chars or len(text)))


def test_silences_stand_between_events() -> None:
    pause = Pause(delay_s=2)
    assert list(render(reply(pause, Reasoning(text="a"))))[1] == pause
    assert list(render(reply(Reasoning(text="a"), pause)))[-3] == pause


def body(*messages: dict[str, Any], **fields: Any) -> bytes:
    return msgspec.json.encode({"model": "m", "stream": True, "messages": messages, **fields})


def item(role: str, block: dict[str, Any], kind: str, text: str, *, is_users: bool = False, **more: str) -> Item:
    raw = msgspec.json.encode({"role": role, "content": block})
    return Item(raw=raw, is_users=is_users, parts=(ContentPart(role=role, kind=kind, text=text, **more),))


def test_a_request_is_read_block_by_block_without_its_cache_marks() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    text = {"type": "text", "text": "Go"}
    call = {"type": "tool_use", "id": "c", "name": "mcp__kit__add", "input": {"b": 1, "a": "no words"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "42"}
    nested = {"type": "tool_result", "tool_use_id": "d", "content": [{"type": "text", "text": "43"}]}
    mixed = {"type": "tool_result", "tool_use_id": "e", "content": [{"type": "text", "text": "44"}, {"type": "image"}]}
    asked = body(
        {"role": "user", "content": [text | mark]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result | mark, nested, mixed, {"type": "image"}]},
        {"role": "system", "content": "The user says more."},
        unknown={"to": "us"},
        system=[{"type": "text", "text": "Be good."} | mark, {"type": "text", "text": "Be brief."}],
        tools=[
            {"name": "Bash", "input_schema": {"properties": {"command": {"type": "string"}}}},
            {"name": "mcp__kit__add", "input_schema": {}},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
    )
    assert parse_request(asked) == ReplyRequest(
        model="m",
        tools=(BASH, ADD, Tool(name="web_search", properties={})),
        items=(
            item("user", text, "text", "Go", is_users=True),
            item("assistant", call, "tool_use", '{"b":1,"a":"no words"}', tool="mcp__kit.add", call_id="c"),
            item("user", result, "tool_result", "42", call_id="c"),
            item("user", nested, "tool_result", "43", call_id="d"),
            item("user", mixed, "tool_result", msgspec.json.encode(mixed["content"]).decode(), call_id="e"),
            item("user", {"type": "image"}, "image", '{"type":"image"}', is_users=True),
            item("system", {"type": "text", "text": "The user says more."}, "text", "The user says more."),
        ),
        system=tuple(ContentPart(role="system", kind="text", text=text) for text in ("Be good.", "Be brief.")),
    )
    (system,) = parse_request(body(system="Be good.")).system
    assert system.text == "Be good."


def test_an_answer_of_a_form_is_asked_for_by_a_format_or_by_a_tool() -> None:
    assert parse_request(body(output_config={"format": {"type": "json_schema"}})).has_output_schema
    assert parse_request(body(tools=[{"name": "StructuredOutput"}])).has_output_schema
    assert not parse_request(body(output_config={})).has_output_schema


def test_a_summary_is_asked_for_on_the_side() -> None:
    wish = {"role": "user", "content": "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nSum up."}
    reminder = {"role": "system", "content": "Be good."}
    assert parse_request(body(wish, reminder)).is_side
    assert not parse_request(body(wish, {"role": "user", "content": "Go on."})).is_side


def test_a_request_may_want_no_stream() -> None:
    assert [parse_request(body(stream=wish)).is_streamed for wish in (True, False)] == [True, False]


def test_tokens_are_counted_by_size() -> None:
    counts = [json.loads(count_tokens(body({"role": "user", "content": "x" * n})))["input_tokens"] for n in (1, 401)]
    assert counts[1] - counts[0] == 100


@pytest.mark.parametrize(
    "wrong", [b"", b'{"messages":"\xff"}', b'{"stream":true}', b'{"messages":[1]}', b'{"messages":[{"role":"user"}]}']
)
def test_what_is_no_request_is_refused_in_words(wrong: bytes) -> None:
    for read in (parse_request, count_tokens):
        with pytest.raises(WireError, match="not a Messages request"):
            read(wrong)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (503, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_an_error_has_the_form_clients_look_for(status: int, kind: str) -> None:
    error = {"type": kind, "message": "c: why"}
    assert json.loads(render_error("why", code="c", status=status)) == {"type": "error", "error": error}
