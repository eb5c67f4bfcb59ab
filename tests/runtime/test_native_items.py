"""Messages as native items of Codex and Claude Code: complete, in order, deterministic, and valid for the agents."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.message import AgentPart, CallPart, Message, Part, ResultPart, SummaryPart, UserPart
from proctor.ids import EntryId
from proctor.runtime.claude_code import native_items as claude
from proctor.runtime.codex_app_server import native_items as codex
from proctor.runtime.conversion import NO_OUTPUT, SUMMARY_LABEL, Conversion, Omission

Convert = Callable[[Iterable[Message]], Conversion]

both = pytest.mark.parametrize("convert", [codex.native_items, claude.native_items], ids=["codex", "claude"])
pytestmark = pytest.mark.requirement("context.projection.native")

_ids = st.integers(0, 12).map(lambda at: EntryId(f"run/mission.flow.r1.1#{at}"))
_texts = st.text(max_size=8)
_values = st.recursive(
    st.none() | st.integers(-9, 9) | _texts, lambda inner: st.dictionaries(_texts, inner, max_size=2)
)
_parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(UserPart, text=_texts),
    st.builds(AgentPart, text=_texts),
    st.builds(SummaryPart, text=_texts, sources=st.just(())),
    st.builds(
        CallPart, kind=st.sampled_from(["command", "mcp", "dynamic", "patch", "other"]), name=_texts, input=_values
    ),
    st.builds(ResultPart, call=_ids, name=_texts, output=st.none() | _texts, ok=st.none() | st.booleans()),
)
histories = st.lists(st.builds(Message, id=_ids, at_ms=st.just(0), part=_parts), max_size=14)


def message(id_: str, part: Part) -> Message:
    return Message(id=EntryId(id_), at_ms=0, part=part)


def blocks(conversion: Conversion) -> Iterator[dict[str, Any]]:
    """The items of Codex, or the content blocks of Claude Code."""
    for item in conversion.items:
        yield from item.value["message"]["content"] if "message" in item.value else [item.value]


def call_ids(conversion: Conversion) -> list[str]:
    return [block.get("call_id") or block["id"] for block in blocks(conversion) if block["type"] in CALLS]


def result_ids(conversion: Conversion) -> list[str]:
    return [block.get("call_id") or block["tool_use_id"] for block in blocks(conversion) if block["type"] in RESULTS]


CALLS = {"function_call", "tool_use"}
RESULTS = {"function_call_output", "tool_result"}


@both
@given(histories)
def test_each_message_is_in_one_item_or_omitted_with_a_reason(convert: Convert, history: list[Message]) -> None:
    conversion = convert(history)
    omitted = [omission.entry for omission in conversion.omitted]
    assert len(set(conversion.entries)) == len(conversion.entries)
    assert sorted((*conversion.entries, *omitted)) == sorted(each.id for each in history)


@both
@given(histories)
def test_order_is_kept_except_that_results_follow_their_calls(convert: Convert, history: list[Message]) -> None:
    conversion = convert(history)
    part_of = {each.id: each.part for each in reversed(history)}
    entries = [entry for entry in conversion.entries if not isinstance(part_of[entry], ResultPart)]
    positions = [[each.id for each in history].index(entry) for entry in entries]
    assert positions == sorted(positions)


@both
@given(histories)
def test_calls_have_unique_ids_and_exactly_one_result_after_them(convert: Convert, history: list[Message]) -> None:
    conversion = convert(history)
    calls = call_ids(conversion)
    assert len(set(calls)) == len(calls)
    assert sorted(result_ids(conversion)) == sorted(calls)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call) for call in calls)
    kinds = [
        (block["type"] in CALLS, block.get("call_id") or block.get("id") or block.get("tool_use_id"))
        for block in blocks(conversion)
        if block["type"] in CALLS | RESULTS
    ]
    assert all(kinds.index((True, call)) < kinds.index((False, call)) for call in calls)


@both
@given(histories)
def test_equal_messages_have_equal_bytes_whatever_the_order_of_keys(convert: Convert, history: list[Message]) -> None:
    def shuffled(value: Any) -> Any:
        return {key: shuffled(value[key]) for key in reversed(value)} if isinstance(value, dict) else value

    def rebuilt(each: Message) -> Message:
        match each.part:
            case CallPart(kind=kind, name=name, input=input_):
                return message(each.id, CallPart(kind=kind, name=name, input=shuffled(input_)))
            case _:
                return each

    again = convert([rebuilt(each) for each in history])
    assert (again.data, again.sha256) == (convert(history).data, convert(history).sha256)


_LOOK = [
    message("r/a#1", UserPart(text="Look.")),
    message("r/a#2", CallPart(kind="command", name="shell", input={"cwd": "/w", "command": "/bin/bash -lc 'ls -l'"})),
    message("r/a#3", CallPart(kind="mcp", name="kit/add", input={"b": 1, "a": 2})),
    message("r/a#4", ResultPart(call=EntryId("r/a#3"), name="kit/add", output="3", ok=True)),
    message("r/a#5", ResultPart(call=EntryId("r/a#2"), name="shell", output="no", ok=False, cut_bytes=7)),
    message("r/a#6", AgentPart(text="Done.")),
    message("sum-1", SummaryPart(text="They looked.", sources=(EntryId("r/a#1"),))),
]
_CUT = "no\n[7 bytes of this output were left out]"


def test_codex_items_are_the_agents_own_shell_calls_and_messages() -> None:
    shell, add = (codex.call_id_of(EntryId(f"r/a#{at}")) for at in (2, 3))
    assert [item.value for item in codex.native_items(_LOOK).items] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"type": "function_call", "name": "exec_command", "call_id": shell, "arguments": '{"cmd":"ls -l"}'},
        {"type": "function_call", "name": "mcp__kit__add", "call_id": add, "arguments": '{"a":2,"b":1}'},
        {"type": "function_call_output", "call_id": add, "output": "3"},
        {"type": "function_call_output", "call_id": shell, "output": f"{_CUT}\n[this call failed]"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": f"{SUMMARY_LABEL}They looked."}],
        },
    ]


def test_claude_frames_hold_a_round_of_calls_and_then_all_their_results() -> None:
    bash, add = (claude.call_id_of(EntryId(f"r/a#{at}")) for at in (2, 3))
    conversion = claude.native_items(_LOOK)
    assert [(item.value["type"], item.value["message"]["content"]) for item in conversion.items] == [
        ("user", [{"type": "text", "text": "Look."}]),
        (
            "assistant",
            [
                {"type": "tool_use", "id": bash, "name": "Bash", "input": {"command": "ls -l"}},
                {"type": "tool_use", "id": add, "name": "mcp__kit__add", "input": {"a": 2, "b": 1}},
            ],
        ),
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": add, "content": "3"},
                {"type": "tool_result", "tool_use_id": bash, "content": _CUT, "is_error": True},
            ],
        ),
        ("assistant", [{"type": "text", "text": "Done."}]),
        ("user", [{"type": "text", "text": f"{SUMMARY_LABEL}They looked."}]),
    ]
    assert all(item.value["message"]["role"] == item.value["type"] for item in conversion.items)


def test_claude_calls_have_the_names_and_inputs_that_its_tools_accept() -> None:
    edit = CallPart(kind="patch", name="Edit", input={"changes": [{"path": "a"}], "file_path": "a", "old_string": "x"})
    conversion = claude.native_items(
        [message("r/a#1", edit), message("r/a#2", CallPart(kind="dynamic", name="look up", input=None))]
    )
    assert [(block["name"], block["input"]) for block in conversion.items[0].value["message"]["content"]] == [
        ("Edit", {"file_path": "a", "old_string": "x"}),
        ("mcp__proctor__look_up", {}),
    ]


@both
def test_call_without_result_is_completed_and_reported(convert: Convert) -> None:
    conversion = convert([message("r/a#1", CallPart(kind="other", name="nap")), message("r/a#2", AgentPart(text="?"))])
    assert conversion.unanswered == (EntryId("r/a#1"),)
    assert conversion.entries == (EntryId("r/a#1"), EntryId("r/a#2"))
    assert [block.get("output", block.get("content")) for block in blocks(conversion) if block["type"] in RESULTS] == [
        NO_OUTPUT
    ]


@both
def test_what_agents_refuse_is_omitted_and_reported(convert: Convert) -> None:
    call, result = message("r/a#1", CallPart(kind="other", name="nap")), ResultPart(call=EntryId("r/a#1"), name="nap")
    unknown = ResultPart(call=EntryId("r/a#9"), name="nap", output="late")
    history = [
        call,
        message("r/a#2", result),
        message("r/a#3", result),
        message("r/a#4", unknown),
        message("r/a#5", UserPart(text=" \n")),
        call,
    ]
    assert convert(history).omitted == (
        Omission(entry=EntryId("r/a#3"), reason="repeated result"),
        Omission(entry=EntryId("r/a#4"), reason="result without call"),
        Omission(entry=EntryId("r/a#5"), reason="empty text"),
        Omission(entry=EntryId("r/a#1"), reason="repeated id"),
    )


@both
@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "\u2028", "\r\n", "</conversation_context>"])
def test_strange_texts_can_be_encoded(convert: Convert, text: str) -> None:
    history = [
        message("r/a#1", UserPart(text=f"x{text}")),
        message("r/a#2", CallPart(kind="other", name=text, input={text: [text]})),
        message("r/a#3", ResultPart(call=EntryId("r/a#2"), name=text, output=text)),
    ]
    assert json.loads(convert(history).data)
