"""The mirror is a fold: entries with the position in the record as their id, of completed turns only."""

import pytest

from proctor.context.model import TurnState
from proctor.event import model
from proctor.event.bounds import TEXT_BYTES
from proctor.event.history_item import HistoryCall, HistoryItem
from proctor.event.message import AgentPart, CallPart, Message, ResultPart, UserPart
from proctor.event.outcome import Outcome
from proctor.ids import EntryId
from tests.context.made import Events, fold

pytestmark = pytest.mark.requirement("session.mirror")


def entry(frame: str, at_ms: int, part: object, *, is_tainted: bool = False) -> Message:
    return Message(id=EntryId(f"run/session-1.1#{frame}"), at_ms=at_ms, part=part, is_tainted=is_tainted)  # type: ignore[arg-type]


def test_mirror_has_prompt_steer_call_result_and_answer_in_order() -> None:
    make = Events()
    [turn] = fold(
        [
            make.began(),
            make.asked("Fix it."),
            make.called("c", input_={"command": "ls"}),
            make(model.TurnSteered, text="Quickly."),
            make.returned("c", "a.txt\n"),
            make.said("Done."),
            make.ended(),
            make.settled(),
        ]
    )
    assert turn.messages == (
        entry("2", 1002, UserPart(text="Fix it.")),
        entry("3", 1003, CallPart(kind="command", name="run", input={"command": "ls"})),
        entry("4", 1004, UserPart(text="Quickly.")),
        entry("5", 1005, ResultPart(call=EntryId("run/session-1.1#3"), name="run", output="a.txt\n", ok=True)),
        entry("6", 1006, AgentPart(text="Done.")),
    )
    assert (turn.id, turn.thread, turn.state) == ("run/session-1.1#2", "th", TurnState.ACCEPTED)


def test_mirror_numbers_the_entries_of_one_frame() -> None:
    make = Events()
    events = [make.asked("Go."), make.said("One.", frame=7), make.called("c", frame=7), make.returned("c", None)]
    [turn] = fold([*events, make.ended(), make.settled()])
    assert [each.id.rpartition("#")[2] for each in turn.messages] == ["1", "7.1", "7.2", "2"]
    [result] = [each.part for each in turn.messages if isinstance(each.part, ResultPart)]
    assert result.call == "run/session-1.1#7.2"


def test_mirror_takes_the_call_from_its_end_if_it_has_no_beginning() -> None:
    make = Events()
    [turn] = fold(make.turn("Go.", make.returned("c", "out", input={"command": "ls"})))
    [_, call, result] = turn.messages
    assert call.part == CallPart(kind="command", name="run", input={"command": "ls"})
    assert isinstance(result.part, ResultPart)
    assert result.part.call == call.id


def test_mirror_cuts_long_output_and_says_by_how_much() -> None:
    make = Events()
    [turn] = fold(make.turn("Go.", make.called("c"), make.returned("c", "x" * (TEXT_BYTES + 5))))
    [result] = [each.part for each in turn.messages if isinstance(each.part, ResultPart)]
    assert (len(result.output or ""), result.cut_bytes) == (TEXT_BYTES, 5)


@pytest.mark.parametrize("kind", ["web", "mcp"])
def test_case_29_mirror_taints_such_results_and_what_follows_up_to_the_next_prompt(kind: str) -> None:
    make = Events()
    first = make.turn(
        "Go.",
        make.said("Before."),
        make.called("c", kind=kind),
        make.returned("c", "x", kind=kind),
        make.said("After."),
    )
    turns = fold([*first, *make.turn("Next.", make.said("Clean."))])
    assert [[each.is_tainted for each in turn.messages] for turn in turns] == [
        [False, False, False, True, True],
        [False, False],
    ]


def test_mirror_imports_calls_with_their_results_and_taint() -> None:
    make = Events()
    shell = HistoryCall(kind="command", input={"command": "ls"}, output="a", ok=True)
    items = (
        HistoryItem(kind="prompt", text="Go."),
        HistoryItem(kind="tool", text="shell", call=shell),
        HistoryItem(kind="tool", text="search", call=HistoryCall(kind="web", output="x" * (TEXT_BYTES + 5))),
        HistoryItem(kind="tool", text="patch", call=HistoryCall(kind="patch")),
        HistoryItem(kind="tool", text="not known"),
        HistoryItem(kind="message", text="Done."),
        HistoryItem(kind="prompt", text="Next."),
        HistoryItem(kind="message", text="Yes."),
    )
    [turn] = fold([make(model.HistoryRead, source="file", items=items)], is_import=True)
    user, call, result, search, found, patch, done, following, answer = turn.messages
    assert [each.part for each in (user, call, result)] == [
        UserPart(text="Go."),
        CallPart(kind="command", name="shell", input={"command": "ls"}),
        ResultPart(call=call.id, name="shell", output="a", ok=True),
    ]
    assert isinstance(found.part, ResultPart)
    assert (found.part.call, found.part.cut_bytes) == (search.id, 5)
    assert [each.is_tainted for each in (search, found, patch, done, following, answer)] == [
        *(False, True, True, True),
        *(False, False),
    ]


def test_mirror_taints_no_text_of_the_user() -> None:
    make = Events()
    web = (make.called("c", kind="web"), make.returned("c", "x", kind="web"))
    [turn] = fold(make.turn("Go.", *web, make(model.TurnSteered, text="Left."), make.said("After.")))
    assert [(type(each.part).__name__, each.is_tainted) for each in turn.messages] == [
        ("UserPart", False),
        ("CallPart", False),
        ("ResultPart", True),
        ("UserPart", False),
        ("AgentPart", True),
    ]


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (lambda make: make.ended("failed"), Outcome.FAILED),
        (lambda make: make(model.Cancelled, why="asked"), Outcome.CANCELLED),
        (lambda make: make(model.ClockFired, clock="turn", limit_ms=5), Outcome.TIMED_OUT),
        (lambda make: make(model.StreamEnded, cause="gone"), Outcome.CRASHED),
        (lambda make: make.said("And then"), Outcome.UNKNOWN),
    ],
)
def test_mirror_discards_a_turn_that_did_not_complete(end, outcome: Outcome) -> None:  # type: ignore[no-untyped-def]
    make = Events()
    [turn] = fold([make.asked("Go."), make.said("Well,"), end(make)])
    assert (turn.state, turn.ending.outcome) == (TurnState.DISCARDED, outcome)


def test_mirror_leaves_out_what_arrives_after_the_turn() -> None:
    make = Events()
    turns = fold([*make.turn("Go.", make.said("Done.")), make.said("Late."), *make.turn("Again.")])
    assert [len(turn.messages) for turn in turns] == [2, 1]


def test_mirror_has_no_entry_of_a_request_to_shorten_the_history() -> None:
    make = Events()
    [turn] = fold([make.asked(None), make.ended(), make.settled()])
    assert (turn.kind, turn.messages, turn.state) == ("compaction", (), TurnState.ACCEPTED)


def test_mirror_imports_a_history_that_was_read_before_the_first_turn_only() -> None:
    make = Events()
    items = (
        HistoryItem(kind="prompt", text="Hi."),
        HistoryItem(kind="tool", text="x"),
        HistoryItem(kind="message", text="Yo."),
    )
    read = [make(model.HistoryRead, source="s", items=items) for _ in range(2)]
    events = [make.began(), read[0], *make.turn("Go."), read[1]]
    turns = fold(events, is_import=True)
    assert [(turn.kind, [each.part for each in turn.messages]) for turn in turns] == [
        ("import", [UserPart(text="Hi."), AgentPart(text="Yo.")]),
        ("prompt", [UserPart(text="Go.")]),
    ]
    assert [turn.kind for turn in fold(events)] == ["prompt"]
