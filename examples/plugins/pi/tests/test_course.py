"""When a turn is over."""

from typing import Any

import msgspec
import pytest

from proctor_pi.course import Course, Move
from proctor_pi.wire import Frame

STOP, GO, NONE = Move.STOPPED, Move.OVER, Move.NONE
REPLY: dict[str, Any] = {"type": "response", "command": "get_state", "success": True}


def moves(*frames: dict[str, Any]) -> list[Move]:
    course = Course()
    return [course.feed(msgspec.convert(frame, Frame)) for frame in frames]


def test_turn_is_over_when_a_check_after_its_stop_is_answered() -> None:
    assert moves({"type": "agent_start"}, {"type": "agent_end"}, {**REPLY, "id": "rest-1"}) == [NONE, STOP, GO]


@pytest.mark.parametrize(
    ("goes_on", "stops"),
    [
        ([{"type": "auto_retry_start"}, {"type": "agent_start"}], {"type": "agent_end"}),
        ([{"type": "auto_retry_start"}], {"type": "auto_retry_end", "success": False}),
        ([{"type": "compaction_start"}], {"type": "compaction_end"}),
        (
            [{"type": "compaction_start"}, {"type": "compaction_end", "willRetry": True}, {"type": "agent_start"}],
            {"type": "agent_end"},
        ),
    ],
)
def test_turn_that_continues_by_itself_is_not_over(goes_on: list[dict[str, Any]], stops: dict[str, Any]) -> None:
    heard = moves({"type": "agent_end"}, *goes_on, {**REPLY, "id": "rest-1"}, stops, {**REPLY, "id": "rest-2"})

    assert heard == [STOP, *(NONE for _ in goes_on), NONE, STOP, GO]


def test_answer_to_an_earlier_check_does_not_end_a_later_stop() -> None:
    stopped_twice = moves(
        {"type": "agent_end"}, {"type": "agent_end"}, {**REPLY, "id": "rest-1"}, {**REPLY, "id": "rest-2"}
    )

    assert stopped_twice == [STOP, STOP, NONE, GO]
