"""The grammar of events: what each law forbids, and what none of them does."""

import msgspec
import pytest

from proctor.event.laws import Laws
from proctor.event.model import (
    CompactionBegan,
    CompactionEnded,
    Event,
    FrameNoted,
    SessionBegan,
    StatusChanged,
    StreamEnded,
    TextSaid,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    TurnEnded,
)
from proctor.ids import CallId, ItemId, ThreadId, TurnId
from tests.event.streams import total

T1, C1, I1 = TurnId("t1"), CallId("c1"), ItemId("i1")

SESSION = SessionBegan(thread=ThreadId("th"), frame=1, at_ms=0)
BEGAN = TurnBegan(turn=T1, frame=2, at_ms=0)
TOOL = ToolBegan(turn=T1, call=C1, kind="command", name="shell", frame=3, at_ms=0)
TOOL_DONE = ToolEnded(turn=T1, call=C1, kind="command", name="shell", ok=True, status="completed", frame=4, at_ms=0)
SAID = TextSaid(turn=T1, item=I1, text="Hello", frame=5, at_ms=0)
SPENT = total(10, frame=6)
SPENT_LESS = total(9, frame=7)
ENDED = TurnEnded(turn=T1, status="completed", frame=8, at_ms=0)
SHORTENING = CompactionBegan(frame=8, at_ms=0)
SHORTENED = CompactionEnded(keeps="nothing", frame=8, at_ms=0)
CLOSED = StreamEnded(cause="end of stdout", frame=9, at_ms=0)

WHOLE: list[Event] = [SESSION, BEGAN, TOOL, TOOL_DONE, SAID, SPENT, ENDED, SHORTENING, SHORTENED, CLOSED]


def broken(*events: Event) -> list[str]:
    laws = Laws()
    return [law for event in events if (law := laws.feed(event)) is not None]


def test_a_turn_with_everything_in_it_breaks_no_law() -> None:
    assert broken(*WHOLE) == []
    assert broken(*WHOLE, StatusChanged(status="closed", frame=10, at_ms=0)) == [], "a status may come last"


@pytest.mark.parametrize(
    ("events", "law"),
    [
        ([BEGAN, FrameNoted(native="late", frame=1, at_ms=0)], "frame 1 comes after frame 2"),
        ([SESSION, SESSION], "a second session began"),
        ([BEGAN, BEGAN], "turn t1 began twice"),
        ([BEGAN, ENDED, ENDED], "turn t1 ended twice"),
        ([TOOL, TOOL], "call c1 began twice"),
        ([TOOL, TOOL_DONE, TOOL_DONE], "call c1 ended twice"),
        ([SAID, SAID], "message i1 was sent twice"),
        ([SPENT, SPENT_LESS], "the thread's total of tokens decreased"),
        ([SHORTENED], "a compaction ended that had not begun"),
        ([SHORTENING, SHORTENED, SHORTENED], "a compaction ended that had not begun"),
        ([CLOSED, TurnBegan(turn=T1, frame=10, at_ms=0)], "a turn began after the stream had ended"),
        ([CLOSED, TurnEnded(turn=T1, status="failed", frame=10, at_ms=0)], "a turn ended after the stream had ended"),
        (
            [CLOSED, ToolBegan(turn=T1, call=C1, kind="mcp", name="x", frame=10, at_ms=0)],
            "a call began after the stream had ended",
        ),
        (
            [CLOSED, ToolEnded(turn=T1, call=C1, kind="mcp", name="x", ok=True, status="s", frame=10, at_ms=0)],
            "a call ended after the stream had ended",
        ),
        (
            [CLOSED, msgspec.structs.replace(SAID, frame=10)],
            "a message was sent after the stream had ended",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_law_is_told_once_where_it_is_broken(events: list[Event], law: str) -> None:
    assert broken(*events) == [law]


def test_two_events_of_one_frame_are_in_order() -> None:
    assert broken(SESSION, FrameNoted(native="same", frame=1, at_ms=0)) == []
