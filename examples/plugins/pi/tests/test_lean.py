"""The text that pi repeats is removed, and nothing else."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from proctor_pi.lean import LEFT_OUT, Lean

USAGE = {"input": 0, "output": 0}


def lean(*frames: Any) -> list[Any]:
    one = Lean()
    return [msgspec.json.decode(one.line(msgspec.json.encode(frame))) for frame in frames]


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "usage": USAGE}


def output(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {
        "type": "tool_execution_update",
        "toolCallId": "c",
        "toolName": "bash",
        "partialResult": {"content": content},
    }


def test_piece_does_not_repeat_the_reply() -> None:
    piece = {"type": "text_delta", "contentIndex": 1, "delta": "lo"}
    frame = {
        "type": "message_update",
        "assistantMessageEvent": {**piece, "partial": reply("Hello th")},
        "message": reply("Hello th"),
    }

    assert lean(frame) == [{"type": "message_update", "assistantMessageEvent": piece}]


def test_reply_is_announced_empty_and_prompt_in_full() -> None:
    begun = {"type": "message_start", "message": reply("Hel")}
    prompt = {"type": "message_start", "message": {"role": "user", "content": [{"type": "text", "text": "Hi"}]}}

    assert lean(begun, prompt) == [{"type": "message_start", "message": {**reply(""), "content": []}}, prompt]


@given(st.lists(st.text(max_size=5), max_size=8))
def test_output_increments_add_up_to_the_output(pieces: list[str]) -> None:
    so_far = ["".join(pieces[: count + 1]) for count in range(len(pieces))]

    grown = [frame["partialResult"]["content"][0]["text"] for frame in lean(*map(output, so_far))]

    assert grown == pieces


def test_output_with_dropped_beginning_is_kept_in_full() -> None:
    end = {"type": "tool_execution_end", "toolCallId": "c", "result": {"content": []}}

    frames = (output("one two"), output("two three"), output("two three four"), end, output("two three"))
    assert lean(*frames) == [output("one two"), output("two three"), output(" four"), end, output("two three")]


def test_fact_reports_fields_and_bytes_left_out() -> None:
    one = Lean()
    lines = [msgspec.json.encode(frame) for frame in (output("one"), output("one two"), {"type": "agent_end"})]

    kept = [one.line(line) for line in lines]

    assert one.fact().value == {"leftOut": LEFT_OUT, "bytes": sum(map(len, lines)) - sum(map(len, kept))}
    assert one.left_out_bytes == len("one")


def test_unexpected_lines_are_not_changed() -> None:
    for line in (
        b"no JSON",
        b'{"type":7}',
        b'{"type":"message_update"}',
        b'{"type":"message_start","message":"x"}',
        b"\xff",
    ):
        assert Lean().line(line) == line
