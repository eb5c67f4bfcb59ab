"""What repeats itself, what comes from elsewhere and what nobody knows: kept, counted, and not taken for more."""

from typing import Any

import pytest

from proctor.event.model import (
    ApprovalAsked,
    FrameNoted,
    PromptSent,
    ReplyReceived,
    SessionBegan,
    ToolBegan,
    TurnEnded,
    Unrecognized,
)
from proctor.event.row import Direction
from proctor.ids import CallId, ThreadId, TurnId
from tests.runtime.stories import COMMAND, THREAD, TURN, Story, at


@pytest.fixture
def story() -> Story:
    return Story().begun()


def test_what_repeats_itself_or_comes_late_is_noted_and_not_told_twice(story: Story) -> None:
    story.item("item/started", "commandExecution", "c", **COMMAND, status="inProgress")
    story.item("item/completed", "commandExecution", "d", **COMMAND, status="completed")
    turn = {"id": TURN, "status": "completed"}
    story.heard("turn/completed", turn=turn)
    assert [
        *story.heard("turn/started", turn=turn),
        *story.heard("turn/completed", turn=turn),
        *story.item("item/started", "commandExecution", "c", **COMMAND, status="inProgress"),
        *story.item("item/started", "commandExecution", "d", **COMMAND, status="inProgress"),
        *story.item("item/completed", "commandExecution", "d", **COMMAND, status="completed"),
    ] == [
        FrameNoted(native="repeated turn/started", **at(8)),
        FrameNoted(native="repeated turn/completed", **at(9)),
        FrameNoted(native="repeated item/started", **at(10)),
        FrameNoted(native="repeated item/started", **at(11)),
        FrameNoted(native="repeated item/completed", **at(12)),
    ]


def test_what_a_helper_does_is_told_but_its_turns_totals_and_words_are_not_the_attempts(story: Story) -> None:
    usage = {"total": {"totalTokens": 9, "inputTokens": 8, "outputTokens": 1}}
    helper = {"threadId": "helper", "turnId": "helpers"}
    assert [
        *story.heard("turn/started", **helper, turn={"id": "helpers", "status": "inProgress"}),
        *story.heard("thread/tokenUsage/updated", **helper, tokenUsage=usage),
        *story.heard("thread/status/changed", **helper, status={"type": "idle"}),
        *story.heard("turn/completed", **helper, turn={"id": "helpers", "status": "completed"}),
        *story.heard("item/agentMessage/delta", **helper, itemId="m", delta="I"),
        *story.heard("item/completed", **helper, item={"id": "m", "type": "agentMessage", "text": "I am done."}),
    ] == [
        FrameNoted(native="another thread's turn/started", **at(5)),
        FrameNoted(native="another thread's thread/tokenUsage/updated", **at(6)),
        FrameNoted(native="another thread's thread/status/changed", **at(7)),
        FrameNoted(native="another thread's turn/completed", **at(8)),
        FrameNoted(native="another thread's item/agentMessage/delta", **at(9)),
        FrameNoted(native="another thread's agentMessage", **at(10)),
    ]
    [began] = story.heard("item/started", **helper, item={"id": "c", "type": "commandExecution", **COMMAND})
    assert isinstance(began, ToolBegan)
    assert began.turn == "helpers"


DONE = {"id": "c", "type": "commandExecution", **COMMAND}


def used(total: int) -> dict[str, Any]:
    usage = {"total": {"totalTokens": total, "inputTokens": 1, "outputTokens": 1}}
    return {"method": "thread/tokenUsage/updated", "params": {"threadId": THREAD, "tokenUsage": usage}}


@pytest.mark.requirement("runtime.events.lossless")
@pytest.mark.parametrize(
    ("frame", "native"),
    [
        ({"method": "item/newer", "params": {}}, "item/newer"),
        ({"method": "turn/completed", "params": {"turn": "of another shape"}}, "turn/completed"),
        ({"method": "item/started"}, "item/started"),
        ({"id": 0, "method": "item/newer/ask", "params": {}}, "item/newer/ask"),
        (used(10**30), "thread/tokenUsage/updated"),
        (used(2**53 + 1), "thread/tokenUsage/updated"),
        (used(-1), "thread/tokenUsage/updated"),
        ({"method": "item/completed", "params": {"item": {**DONE, "durationMs": 10**30}}}, "item/completed"),
        ({"method": "item/completed", "params": {"item": {**DONE, "exitCode": -(10**30)}}}, "item/completed"),
        ({"id": 77, "result": {}}, "reply to nothing"),
        ({"id": 2, "result": {}, "error": "of another shape"}, "not a message"),
        ([1, 2], "not a message"),
        ("text", "not a message"),
    ],
)
def test_what_we_do_not_know_is_kept_under_its_own_name(story: Story, frame: Any, native: str) -> None:
    assert story.row(Direction.IN, frame) == [Unrecognized(native=native, **at(5))]


def test_a_line_that_is_no_json_is_unrecognized() -> None:
    assert Story().row(Direction.IN, text="oops") == [Unrecognized(native="not a message", **at(1))]


def test_a_turn_that_ended_in_a_way_we_do_not_know_has_ended_and_not_well(story: Story) -> None:
    why = "the turn ended as 'paused', which Proctor does not know"
    assert story.heard("turn/completed", turn={"id": TURN, "status": "paused"}) == [
        TurnEnded(turn=TurnId(TURN), status="failed", error=why, **at(5))
    ]


def test_frames_of_the_oldest_protocol_are_counted_unless_they_ask_for_an_answer(story: Story) -> None:
    old = {"conversationId": THREAD, "id": "0", "msg": {"type": "agent_message", "message": "Hello."}}
    asks = {"conversationId": THREAD, "callId": "c", "command": ["ls", "-l"], "cwd": "/w", "parsedCmd": []}
    assert [
        *story.row(Direction.IN, {"method": "codex/event/agent_message", "params": old}),
        *story.row(Direction.IN, {"method": "codex/event", "params": old}),
        *story.row(Direction.IN, {"method": "applyPatchApproval", "params": asks}),
        *story.row(Direction.IN, {"method": "execCommandApproval", "id": 3, "params": asks}),
    ] == [
        Unrecognized(native="codex/event/agent_message", **at(5)),
        Unrecognized(native="codex/event", **at(6)),
        Unrecognized(native="applyPatchApproval", **at(7)),
        ApprovalAsked(request="3", about="command", call=CallId("c"), detail="ls -l", **at(8)),
    ]


@pytest.mark.parametrize("method", ["thread/resume", "thread/fork"])
def test_a_session_begins_once_however_it_comes_by_its_thread(method: str) -> None:
    story = Story()
    reply = {"thread": {"id": THREAD, "ephemeral": False}, "model": "m", "cwd": "/w"}
    told = []
    for number in (1, 2):  # the second time after a connection that was lost
        story.asked(number, method, threadId=THREAD)
        told += story.row(Direction.IN, {"id": number, "result": reply})
    assert told == [
        SessionBegan(
            thread=ThreadId(THREAD),
            model="m",
            cwd="/w",
            ephemeral=False,
            is_resumed=method != "thread/start",
            **at(2),
        ),
        ReplyReceived(method=method, **at(2)),
        ReplyReceived(method=method, **at(4)),
    ]


def test_what_is_said_into_a_turn_is_a_prompt_too(story: Story) -> None:
    said = story.asked(3, "turn/steer", threadId=THREAD, expectedTurnId=TURN, input=[{"type": "text", "text": "Left."}])
    assert said == [PromptSent(text="Left.", **at(5))]
