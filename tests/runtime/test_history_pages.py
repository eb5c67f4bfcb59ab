"""The turns that a thread is said to hold, page by page, told in our words."""

from typing import Any

import pytest

from proctor.event.history import tool_digest
from proctor.event.history_item import HistoryCall, HistoryItem
from proctor.event.model import HistoryRead, ReplyReceived, ToolEnded, Unrecognized
from proctor.event.row import Direction
from tests.runtime.stories import COMMAND, THREAD, Story, at

DONE = {**COMMAND, "status": "completed", "aggregatedOutput": "42\n", "exitCode": 0, "durationMs": 3}


@pytest.fixture
def story() -> Story:
    return Story().begun()


def page(story: Story, *items: dict[str, Any], cursor: str | None = None) -> list[Any]:
    story.asked(5, "thread/turns/list", threadId=THREAD, itemsView="full")
    turn = {"id": "t", "items": list(items), "itemsView": "full", "status": "completed"}
    return story.row(Direction.IN, {"id": 5, "result": {"data": [turn], "nextCursor": cursor}})


@pytest.mark.requirement("runtime.history")
def test_every_item_is_told_with_what_can_be_compared(story: Story) -> None:
    [live] = story.item("item/completed", "commandExecution", "c", **DONE)
    assert isinstance(live, ToolEnded)
    told = page(
        story,
        {
            "type": "userMessage",
            "id": "u",
            "content": [{"type": "text", "text": "Go"}, {"type": "text", "text": "on."}],
        },
        {"type": "reasoning", "id": "r", "summary": ["Hm."], "content": []},
        {"type": "commandExecution", "id": "c", **DONE},
        {"type": "agentMessage", "id": "m", "text": "Done.", "phase": None},
        {"type": "contextCompaction", "id": "x"},
    )
    digest = tool_digest(live.name, live.input, live.output)
    assert told == [
        HistoryRead(
            source="thread/turns/list",
            items=(
                HistoryItem(kind="prompt", id="u", text="Go\non."),
                HistoryItem(kind="reasoning", id="r", text="Hm."),
                HistoryItem(
                    kind="tool",
                    id="c",
                    text="shell",
                    digest=digest,
                    call=HistoryCall(kind="command", input=live.input, output=live.output, ok=live.ok),
                ),
                HistoryItem(kind="message", id="m", text="Done."),
                HistoryItem(kind="other", id="x", text="contextCompaction"),
            ),
            **at(7),
        ),
        ReplyReceived(method="thread/turns/list", **at(7)),
    ]


@pytest.mark.requirement("runtime.history")
def test_a_page_that_is_not_the_last_says_so_and_a_refusal_reads_nothing(story: Story) -> None:
    read, _ = page(story, cursor="more")
    assert read == HistoryRead(source="thread/turns/list", items=(), is_last=False, **at(6))
    story.asked(6, "thread/turns/list", threadId=THREAD)
    why = "ephemeral threads do not support includeTurns"
    assert story.row(Direction.IN, {"id": 6, "error": {"code": -32600, "message": why}}) == [
        ReplyReceived(method="thread/turns/list", error=why, **at(8))
    ]


def test_a_page_of_a_shape_that_is_not_known_is_counted(story: Story) -> None:
    story.asked(5, "thread/turns/list", threadId=THREAD)
    assert story.row(Direction.IN, {"id": 5, "result": {"data": "all"}}) == [Unrecognized(native="reply", **at(6))]
