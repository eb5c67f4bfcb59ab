"""What a command says, as events: nothing lost, nothing invented, whatever the rows are."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.laws import Laws
from proctor.event.model import ResultFound, TextSaid, TextStreamed, TurnEnded, Unrecognized
from proctor.event.row import (
    GENESIS,
    AnySupervisorRow,
    ChannelClosed,
    ChildExited,
    Direction,
    NoteHeard,
    Row,
    StepTaken,
)
from proctor.runtime.base import Normalizer
from proctor.runtime.process import RUNTIME as PROCESS
from proctor.runtime.process import normalize
from proctor.runtime.process.normalize import INTERRUPTED, OPENED, STARTED
from proctor.runtime.replay import RUNTIME as REPLAY
from proctor.runtime.replay.normalize import NOT_REPLAYED, REPLAY_OF, REPLAYED

STEPS = st.sampled_from([OPENED, STARTED, INTERRUPTED, REPLAYED, NOT_REPLAYED, "step"])
DETAILS = st.dictionaries(
    st.sampled_from(["thread", "turn", "argv", "good_exits", "what", "saw", "runtimeId", "code"]),
    st.none() | st.integers(0, 3) | st.text(max_size=3) | st.lists(st.integers(0, 3), max_size=2),
    max_size=4,
)
SEEN = (
    st.builds(StepTaken, step=STEPS, detail=DETAILS)
    | st.builds(ChildExited, code=st.none() | st.integers(0, 3), signal=st.none() | st.just(9))
    | st.builds(ChannelClosed, cause=st.just("x"))
    | st.builds(NoteHeard, text=st.text(max_size=3))
)


def rows_of(*said: tuple[Direction, str] | AnySupervisorRow) -> list[Row]:
    rows = []
    for seq, each in enumerate(said, 1):
        what: dict[str, Any] = (
            {"dir": each[0], "text": each[1]}
            if isinstance(each, tuple)
            else {"dir": Direction.SELF, "frame": msgspec.Raw(msgspec.json.encode(each))}
        )
        rows.append(Row(seq=seq, at_ms=seq, prev=GENESIS, **what))
    return rows


def started(turn: str, *, marker: str | None = None) -> StepTaken:
    detail = {"turn": turn, "argv": ["x"], "prompt": "stdin", "good_exits": [0], "marker": marker}
    return StepTaken(step=STARTED, detail=detail)


SAID = st.lists(st.tuples(st.sampled_from([Direction.IN, Direction.OUT, Direction.ERR]), st.text(max_size=5)) | SEEN)


@given(SAID)
def test_every_row_gives_an_event_of_its_own_whatever_it_is(said: list[Any]) -> None:
    replayed = StepTaken(step=REPLAY_OF, detail={"runtimeId": "process"})
    for normalizer, rows in ((PROCESS.normalizer(), rows_of(*said)), (REPLAY.normalizer(), rows_of(replayed, *said))):
        for row in rows:
            assert {event.frame for event in normalizer.feed(row)} == {row.seq}


@given(turns=st.lists(st.lists(st.text(max_size=30), max_size=8), max_size=3), limit=st.integers(1, 40))
def test_the_pieces_are_the_messages_and_the_messages_are_the_lines(turns: list[list[str]], limit: int) -> None:
    said: list[Any] = []
    for at, lines in enumerate(turns):
        said += [started(str(at)), *((Direction.IN, line) for line in lines), ChildExited(code=0, is_turns_own=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalize, "MESSAGE_CHARS", limit)
        normalizer: Normalizer = PROCESS.normalizer()
        events = [event for row in rows_of(*said) for event in normalizer.feed(row)]

    laws = Laws()
    assert [law for event in events if (law := laws.feed(event)) is not None] == []
    messages = [event for event in events if isinstance(event, TextSaid)]
    pieces = [event for event in events if isinstance(event, TextStreamed)]
    assert {each.item: each.text for each in messages} == {
        item: "".join(piece.text for piece in pieces if piece.item == item) for item in {each.item for each in pieces}
    }
    for at, lines in enumerate(turns):
        assert "\n".join(each.text for each in messages if each.turn == str(at)) == "\n".join(lines)
    assert [event.status for event in events if isinstance(event, TurnEnded)] == ["completed"] * len(turns)


@pytest.mark.parametrize("limit", [1, 40, 1000])
@pytest.mark.parametrize("after", [[], [""], ["```", " "]])
def test_a_marker_in_the_last_words_is_found_however_much_was_said_before(
    limit: int, after: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normalize, "MESSAGE_CHARS", limit)
    lines = ["I work and work.", "```", 'RESULT: {"done": true, "answer": "4"}', *after]
    said: list[Any] = [started("1", marker="RESULT:"), *((Direction.IN, line) for line in lines), ChildExited(code=0)]
    normalizer: Normalizer = PROCESS.normalizer()
    events = [event for row in rows_of(*said) for event in normalizer.feed(row)]

    found = [(event.done, event.answer) for event in events if isinstance(event, ResultFound)]
    assert found == [(True, "4")]


def test_rows_of_a_replay_that_does_not_say_what_it_replays_are_kept_as_strangers() -> None:
    normalizer = REPLAY.normalizer()
    [event] = [event for row in rows_of((Direction.IN, "hello")) for event in normalizer.feed(row)]
    assert isinstance(event, Unrecognized)
