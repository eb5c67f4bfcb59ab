"""session.db: turns are stored once, the thread by compare-and-set, and damage is an error of the evidence."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.context.model import Binding, SittingState, TurnState
from proctor.context.store import SessionStore, open_store, read_store
from proctor.errors import EvidenceError, MachineError
from proctor.ids import RuntimeId, ThreadId
from tests.context.made import Events, fold, sitting

pytestmark = pytest.mark.requirement("session.mirror")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.db"


@pytest.fixture
def store(path: Path) -> Iterator[SessionStore]:
    with open_store(path) as opened:
        opened.begin_sitting(sitting())
        yield opened


def bound(thread: str) -> Binding:
    return Binding(runtime_id=RuntimeId("codex_app_server"), thread=ThreadId(thread), tools="none")


def test_store_keeps_a_completed_turn_once(store: SessionStore) -> None:
    make = Events()
    [turn] = fold(make.turn("Where is the lamp?", make.said("In the cellar.")))
    store.admit(turn, sitting=sitting())
    assert [each.state for each in store.turns()] == [TurnState.ADMITTED]
    assert list(store.messages()) == []
    assert [store.settle(turn, sitting=sitting()) for _ in range(2)] == [True, False]
    assert [(each.n, each.state, each.entries) for each in store.turns()] == [(1, TurnState.ACCEPTED, 2)]
    assert tuple(store.messages()) == turn.messages


def test_store_keeps_no_entry_of_a_turn_that_did_not_complete(store: SessionStore) -> None:
    make = Events()
    [turn] = fold([make.asked("Go."), make.said("Well,"), make.ended("failed")])
    store.admit(turn, sitting=sitting())
    store.settle(turn, sitting=sitting())
    [kept] = store.turns()
    assert (kept.state, kept.outcome, kept.code, kept.entries) == (
        TurnState.DISCARDED,
        "failed",
        "agent.turn-failed",
        0,
    )
    assert list(store.messages()) == []


def test_store_finds_words_that_are_joined_by_signs(store: SessionStore) -> None:
    make = Events()
    [turn] = fold(make.turn("Where is lamp_post-7, and the caf\u00e9?"))
    store.settle(turn, sitting=sitting())
    for query in ("lamp_post", "post-7", "CAF\u00c9", "cafe"):
        assert [message.id for _, message in store.search(query, most=5)] == [turn.id], query
    assert store.search("lamp_pole", most=5) == store.search("_", most=5) == ()
    # Letters that are newer than the index knows are no error.
    store.search("\U0001e900\U0001e901", most=5)


def test_store_finds_entries_by_every_word_newest_first(store: SessionStore) -> None:
    make = Events()
    for prompt, answer in (("The red lamp", "Cellar"), ("A lamp", "Attic"), ("A red chair", "Hall")):
        for turn in fold(make.turn(prompt, make.said(answer))):
            store.settle(turn, sitting=sitting())
    assert [n for n, _ in store.search("lamp", most=9)] == [2, 1]
    assert [n for n, _ in store.search("red lamp", most=9)] == [1]
    assert [n for n, _ in store.search("lamp", most=1)] == [2]


@pytest.mark.parametrize("query", ["", '"', "lamp OR", "a*", "NEAR(", "(", "x:y", "-", "\0", "'"])
def test_store_searches_words_and_no_operators(store: SessionStore, query: str) -> None:
    assert store.search(query, most=5) == ()


@pytest.mark.requirement("context.binding")
def test_case_24_store_changes_a_binding_only_from_the_revision_that_was_read(store: SessionStore) -> None:
    _, revision = store.binding
    store.bind(bound("one"), revision=revision)
    with pytest.raises(MachineError) as caught:
        store.bind(bound("stale"), revision=revision)
    assert caught.value.code == "session.stale"
    assert store.binding == (bound("one"), revision + 1)


@pytest.mark.requirement("context.binding")
def test_case_24_store_reset_begins_a_new_history_and_forgets_the_thread_at_once(store: SessionStore) -> None:
    make = Events()
    for turn in fold([*make.turn("Old."), *make.turn("Older.")]):
        store.settle(turn, sitting=sitting())
    store.bind(bound("one"), revision=store.binding[1])
    store.reset(ending=sitting())
    assert (store.setup.history_after, store.binding[0]) == (2, None)
    assert [each.state for each in store.sittings()] == [SittingState.CLOSED]
    for turn in fold(make.turn("New.")):
        store.settle(turn, sitting=sitting())
    assert len(list(store.messages(after_turn=store.setup.history_after))) == 1
    assert len(list(store.messages())) == 3


def test_store_closes_a_sitting(store: SessionStore) -> None:
    store.close_sitting(sitting())
    assert [each.state for each in store.sittings()] == [SittingState.CLOSED]


def test_store_of_another_program_or_version_is_refused(tmp_path: Path) -> None:
    foreign, newer, noise = (tmp_path / name for name in ("foreign.db", "newer.db", "noise.db"))
    with sqlite3.connect(foreign) as connection:
        connection.execute("create table t (a)")
    with open_store(newer):
        pass
    with sqlite3.connect(newer) as connection:
        connection.execute("pragma user_version = 9")
    noise.write_bytes(b"x" * 5000)
    for path in (foreign, newer, noise):
        for open_ in (open_store, read_store):
            with pytest.raises(EvidenceError) as caught, open_(path):
                pass
            assert (caught.value.code, caught.value.file) == ("session.damaged", str(path))


def test_store_with_a_damaged_row_is_refused(path: Path, store: SessionStore) -> None:
    for turn in fold(Events().turn("Go.")):
        store.settle(turn, sitting=sitting())
    with sqlite3.connect(path) as connection:
        connection.execute("update turn set turn = ?", (b"{torn",))
    with pytest.raises(EvidenceError) as caught, read_store(path) as read:
        read.turns()
    assert caught.value.code == "session.damaged"
