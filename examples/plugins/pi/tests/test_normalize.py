"""Normalizing pi's frames that the real program cannot be made to send at the right moment."""

from typing import Any

import msgspec
import pytest

from proctor.event.model import (
    ErrorReported,
    Event,
    FrameNoted,
    PromptSent,
    ReasoningStreamed,
    ReplyReceived,
    RequestSent,
    TextStreamed,
    Tokens,
    ToolStreamed,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    UsageReported,
    WarningRaised,
)
from proctor.event.row import GENESIS, Direction, Row, TailReleased
from proctor.ids import CallId, ItemId, TurnId
from proctor_pi.normalize import PiNormalizer

STATE = {"type": "response", "command": "get_state", "success": True, "data": {"sessionId": "s"}}


def events(*said: tuple[Direction, Any]) -> list[Event]:
    normalizer = PiNormalizer()
    rows = [
        Row(seq=seq, at_ms=0, dir=dir_, prev=GENESIS, frame=msgspec.Raw(msgspec.json.encode(frame)))
        for seq, (dir_, frame) in enumerate(said, start=1)
    ]
    return [event for row in rows for event in normalizer.feed(row)]


def ended_with(*frames: dict[str, Any]) -> TurnEnded:
    prompt = (Direction.OUT, {"id": "1", "type": "prompt", "message": "Go on."})
    heard = [(Direction.IN, frame) for frame in ({"type": "agent_start"}, *frames)]
    *_, ended = events(prompt, *heard)
    assert isinstance(ended, TurnEnded)
    return ended


def reply(stop_reason: str, error: str | None = None) -> dict[str, Any]:
    return {"type": "message_end", "message": {"role": "assistant", "stopReason": stop_reason, "errorMessage": error}}


def test_turn_id_is_its_prompt_and_steered_message_is_a_prompt() -> None:
    seen = events(
        (Direction.OUT, {"id": "1", "type": "prompt", "message": "Go on."}),
        (Direction.IN, {"type": "agent_start"}),
        (Direction.OUT, {"id": "2", "type": "steer", "message": "Otherwise."}),
        (Direction.OUT, {"id": "3", "type": "abort"}),
    )

    assert seen == [
        PromptSent(text="Go on.", frame=1, at_ms=0),
        TurnBegan(turn=TurnId("1"), frame=2, at_ms=0),
        PromptSent(text="Otherwise.", frame=3, at_ms=0),
        RequestSent(method="abort", frame=4, at_ms=0),
    ]


def test_reply_without_id_answers_the_command_it_names() -> None:
    refused = {"type": "response", "command": "sing", "success": False, "error": "Unknown command: sing"}

    assert events((Direction.OUT, {"id": "1", "type": "sing"}), (Direction.IN, refused), (Direction.IN, refused))[
        1:
    ] == [
        ReplyReceived(method="sing", error="Unknown command: sing", frame=2, at_ms=0),
        Unrecognized(native="reply to nothing", frame=3, at_ms=0),
    ]


def test_cancelled_retry_is_an_interrupt_not_a_failure() -> None:
    ended = ended_with(
        reply("error", "429 slow down"),
        {"type": "agent_end"},
        {"type": "auto_retry_start", "errorMessage": "429 slow down"},
        {"type": "auto_retry_end", "success": False, "finalError": "Retry cancelled"},
        {**STATE, "id": "rest-2"},
    )

    assert (ended.status, ended.code) == ("interrupted", None)


@pytest.mark.parametrize(
    ("last", "status", "code"),
    [
        (reply("stop"), "completed", None),
        (reply("length"), "completed", None),
        (reply("error", "no idea"), "failed", "agent.turn-failed"),
        (reply("aborted", "Request was aborted"), "interrupted", None),
        ({"type": "turn_start"}, "failed", "agent.turn-failed"),  # without any reply
    ],
)
def test_turn_ends_as_its_last_reply_does(last: dict[str, Any], status: str, code: str | None) -> None:
    ended = ended_with(last, {"type": "agent_end"}, {**STATE, "id": "rest-1"})

    assert (ended.status, ended.code) == (status, code)


def counted(stop_reason: str, tokens: int) -> dict[str, Any]:
    usage = {"input": tokens, "output": 1, "cacheRead": 2, "cacheWrite": 3, "totalTokens": tokens + 6}
    message = {"role": "assistant", "stopReason": stop_reason, "usage": usage}
    return {"type": "message_end", "message": message}


@pytest.mark.parametrize(
    ("first", "used"),
    [
        (counted("toolUse", 10), [Tokens(input=40, output=2, total=42, cached_input=4)]),
        (counted("error", 0), []),
        (counted("aborted", 0), []),
        (reply("toolUse"), []),  # it does not say
    ],
)
def test_turn_usage_is_the_sum_of_its_replies_or_unknown(first: dict[str, Any], used: list[Tokens]) -> None:
    begun = {"type": "message_start", "message": {"role": "assistant"}}
    heard = [{"type": "agent_start"}, begun, first, begun, counted("stop", 20), {"type": "agent_end"}]
    prompt = (Direction.OUT, {"id": "1", "type": "prompt", "message": "Go on."})
    seen = events(prompt, *((Direction.IN, frame) for frame in [*heard, {**STATE, "id": "rest-1"}]))

    said = [each for each in seen if isinstance(each, UsageReported)]
    assert [each.tokens for each in said] == used
    assert {(each.turn, each.scope, each.basis) for each in said} <= {(TurnId("1"), "turn", "absolute")}


def test_resolved_trouble_is_only_noted() -> None:
    seen = events(
        (Direction.IN, {"type": "auto_retry_end", "success": True}),
        (Direction.IN, {"type": "compaction_end", "aborted": False}),
        (Direction.IN, {"type": "compaction_end", "errorMessage": "Auto-compaction failed: no"}),
        (Direction.IN, {"type": "extension_error", "error": "oops"}),
    )

    assert seen == [
        FrameNoted(native="auto_retry_end", frame=1, at_ms=0),
        FrameNoted(native="compaction_end", frame=2, at_ms=0),
        ErrorReported(text="Auto-compaction failed: no", will_retry=False, code="agent.turn-failed", frame=3, at_ms=0),
        WarningRaised(source="process", text="oops", channel="extension_error", frame=4, at_ms=0),
    ]


@pytest.mark.parametrize(
    ("stream", "seen"),
    [
        ("3.0|text_delta", TextStreamed(turn=TurnId(""), item=ItemId("3.0"), text="rest", frame=1, at_ms=0)),
        ("3.1|thinking_delta", ReasoningStreamed(turn=TurnId(""), item=ItemId("3.1"), text="rest", frame=1, at_ms=0)),
        ("a|b|output", ToolStreamed(turn=TurnId(""), call=CallId("a|b"), text="rest", frame=1, at_ms=0)),
        ("3.2|toolcall_delta", FrameNoted(native="tail of 3.2|toolcall_delta", frame=1, at_ms=0)),
    ],
)
def test_text_held_back_by_redaction_belongs_to_its_stream(stream: str, seen: Event) -> None:
    assert events((Direction.SELF, TailReleased(stream=stream, text="rest"))) == [seen]
