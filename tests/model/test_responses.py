"""The Responses wire: events a client can put together again, requests read whatever is in them."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import WireError
from proctor.model.responses import parse_request, render, render_error
from proctor.model.wire import (
    ContentPart,
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
SHELL = Tool(name="exec_command", properties={"cmd": {"type": "string"}})
EDIT = Tool(name="apply_patch", freeform=True, properties={})
ADD = Tool(name="add", namespace="kit", properties={})
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def rendered(*parts: Part) -> list[bytes | Pause]:
    return list(render(Reply(serial="9", model="m", parts=parts, tokens=TOKENS)))


def parse(events: Iterable[bytes | Pause]) -> list[dict[str, Any]]:
    """Events as a client reads them; the name of each must be its type."""
    found = []
    for event in events:
        assert isinstance(event, bytes)
        name, data, *end = event.decode().split("\n")
        fields: dict[str, Any] = json.loads(data.removeprefix("data: "))
        assert (name, end) == (f"event: {fields['type']}", ["", ""])
        found.append(fields)
    return found


def test_a_reply_is_items_in_order_and_a_completion_that_repeats_them() -> None:
    events = parse(
        rendered(
            Reasoning(text="Hm."),
            Text(text="Hello", chunk_chars=3),
            ToolCall(tool=SHELL, payload='{"cmd":"ls"}'),
            ToolCall(tool=EDIT, payload="*** Begin"),
            ToolCall(tool=ADD, payload="{}"),
        )
    )
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    call = {"call_id": "call_9_2", "name": "exec_command", "arguments": '{"cmd":"ls"}', "status": "completed"}
    edit = {"call_id": "call_9_3", "name": "apply_patch", "input": "*** Begin", "status": "completed"}
    add = {"call_id": "call_9_4", "name": "add", "namespace": "kit", "arguments": "{}", "status": "completed"}
    said = {"type": "output_text", "text": "Hello", "annotations": []}
    items = [
        {"type": "reasoning", "id": "rs_9_0", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "message", "id": "msg_9_1", "role": "assistant", "status": "completed", "content": [said]},
        {"type": "function_call", "id": "fc_9_2"} | call,
        {"type": "custom_tool_call", "id": "ctc_9_3"} | edit,
        {"type": "function_call", "id": "fc_9_4"} | add,
    ]
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == items
    assert events[-1]["response"] == {
        "id": "resp_9",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": items,
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 17,
        },
    }


@given(text=WORDS, chunk_chars=st.none() | st.integers(1, 50), repeat=st.integers(1, 4))
def test_the_pieces_of_a_text_are_the_text(text: str, chunk_chars: int | None, repeat: int) -> None:
    events = parse(rendered(Text(text=text, chunk_chars=chunk_chars, repeat=repeat)))
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    done = next(event for event in events if event["type"] == "response.output_text.done")
    assert "".join(deltas) == done["text"] == text * repeat
    assert len(deltas) == repeat * -(-len(text) // (chunk_chars or len(text)))


def test_silences_stand_between_events() -> None:
    pause = Pause(delay_s=2)
    assert rendered(pause, Reasoning(text="a"))[1] == pause
    assert rendered(Reasoning(text="a"), pause)[-2] == pause


def test_a_request_is_read_with_its_tools_and_all_its_parts() -> None:
    image = {"type": "input_image", "image_url": "data:,"}
    call = {"type": "function_call", "call_id": "c", "name": "add", "namespace": "kit", "arguments": '{"b":1,"a":2}'}
    patch = {"type": "custom_tool_call", "call_id": None, "name": "apply_patch", "input": "*** Begin Patch"}
    reasoning = {"type": "reasoning", "content": None, "summary": [{"type": "summary_text", "text": "Hm."}]}
    expected: list[tuple[dict[str, Any], list[ContentPart]]] = [
        (
            {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": t} for t in ("a", "b")],
            },
            [part("text", "a", role="developer"), part("text", "b", role="developer")],
        ),
        (
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go"}, image]},
            [part("text", "Go", role="user"), part("input_image", json_of(image), role="user")],
        ),
        (
            {"role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]},
            [part("text", "Yes.", role="assistant")],
        ),
        (call, [part("function_call", '{"b":1,"a":2}', tool="kit.add", call_id="c")]),
        (result("42"), [part("function_call_output", "42", call_id="c")]),
        (result([{"type": "input_text", "text": "43"}]), [part("function_call_output", "43", call_id="c")]),
        (result([image]), [part("function_call_output", json_of([image]), call_id="c")]),
        (patch, [part("custom_tool_call", "*** Begin Patch", tool="apply_patch")]),
        (reasoning, [part("reasoning", json_of(reasoning))]),
        ({"role": "user", "content": []}, [part("", '{"role":"user","content":[]}', role="user")]),
        ({"type": "new", "content": [7]}, [part("", "7")]),
    ]
    request = {
        "model": "m",
        "stream": True,
        "unknown": {"to": "us"},
        "instructions": "Be brief.",
        "input": [raw for raw, _ in expected],
        "tools": [
            {"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {"type": "string"}}}},
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
            {"type": "namespace", "name": "kit", "tools": [{"type": "function", "name": "add", "parameters": {}}]},
            {"type": "web_search"},
        ],
    }
    ask = parse_request(msgspec.json.encode(request))
    assert ask == ReplyRequest(
        model="m",
        tools=(SHELL, EDIT, ADD, Tool(name="web_search", properties={})),
        items=tuple(
            Item(raw=msgspec.json.encode(raw), is_users=raw.get("role") == "user", parts=tuple(parts))
            for raw, parts in expected
        ),
        system=(part("text", "Be brief.", role="system"),),
    )
    assert ask.parts == (*ask.system, *(each for _, parts in expected for each in parts))


def part(kind: str, text: str, *, role: str = "", **more: str) -> ContentPart:
    return ContentPart(role=role, kind=kind, text=text, **more)


def result(output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": "c", "output": output}


def json_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def test_a_bare_prompt_is_one_item_of_the_users() -> None:
    (item,) = parse_request(b'{"input":"Go","stream":true}').items
    assert (item.text, item.is_users) == ("Go", True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not a Responses request"),
        (b'{"input":"\xff","stream":true}', "not a Responses request"),
        (b'{"stream":true}', "missing required field `input`"),
        (b'{"input":[1],"stream":true}', "not a Responses request"),
        (b'{"input":"Go"}', "only streamed replies"),
    ],
)
def test_what_is_no_request_is_refused_in_words(body: bytes, said: str) -> None:
    with pytest.raises(WireError, match=said):
        parse_request(body)


def test_an_error_has_the_form_clients_look_for() -> None:
    fields = {"message": "why", "type": "invalid_request_error", "param": None, "code": "c"}
    assert json.loads(render_error("why", code="c", status=429)) == {"error": fields}
