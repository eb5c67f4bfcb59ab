"""Sessions that are created, forked and verified without an agent, also after a creation that was cut off."""

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from proctor.context.change_session import create_session, fork_session
from proctor.context.kept_session import open_kept_session, session_paths
from proctor.context.model import SessionSettings, Sitting, TurnContext
from proctor.context.report import report_session, search_session
from proctor.context.store import SessionStore, open_store
from proctor.context.store_check import check_store
from proctor.context.verify import rebuild_session, verify_session
from proctor.errors import EvidenceError, InputError
from proctor.evidence.layout import RootPaths, SessionPaths
from proctor.testing.clock import FakeClock
from tests.context.made import Events, fold, sitting

SETTINGS = SessionSettings(runtime="codex_app_server", provider="openai", model="m")


@pytest.fixture
def root(tmp_path: Path) -> RootPaths:
    return RootPaths(tmp_path / "evidence")


def create(root: RootPaths, key: str) -> None:
    create_session(root, key, settings=SETTINGS, clock=FakeClock())


def say(store: SessionStore, prompt: str, *, to: Sitting) -> None:
    for turn in fold(Events().turn(prompt)):
        store.settle(turn, sitting=to)


def test_create_session_stores_how_it_is_opened(root: RootPaths) -> None:
    create(root, "shop")
    report = report_session(root, "shop")
    assert (report.settings, report.binding, report.turns, report.sittings) == (SETTINGS, None, (), ())
    with pytest.raises(InputError) as refused:
        create(root, "shop")
    assert refused.value.code == "session.exists"


@pytest.mark.parametrize("key", ["../shop", "", "a/b", ".hidden"])
def test_create_session_refuses_an_invalid_id(root: RootPaths, key: str) -> None:
    with pytest.raises(InputError) as refused:
        create(root, key)
    assert refused.value.code == "session.id"


def test_a_creation_that_was_cut_off_leaves_no_session_and_nothing_of_it_returns(root: RootPaths) -> None:
    paths = session_paths(root, "shop")
    paths.create()
    with open_store(paths.store):
        pass
    create(root, "shop")
    assert report_session(root, "shop").turns == ()
    paths = session_paths(root, "copy")
    paths.create()
    fork_session(root, "shop", "copy", clock=FakeClock())
    assert report_session(root, "copy").summary.forked_from == "shop"


def test_a_session_whose_header_is_lost_is_not_created_anew(root: RootPaths) -> None:
    paths = session_paths(root, "shop")
    paths.create()
    with open_store(paths.store) as store:
        store.begin_sitting(sitting())
        say(store, "Old.", to=sitting())
    for begin in (lambda: create(root, "shop"), lambda: open_kept_session(root, "shop", clock=FakeClock()).__enter__()):
        with pytest.raises(EvidenceError) as refused:
            begin()
        assert (refused.value.code, refused.value.file) == ("evidence.missing-file", str(paths.header))
    with open_store(paths.store) as store:
        assert len(store.turns()) == 1


def test_a_session_whose_store_is_gone_is_damaged_and_not_begun_again(root: RootPaths) -> None:
    create(root, "shop")
    session_paths(root, "shop").store.unlink()
    with pytest.raises(EvidenceError) as refused, open_kept_session(root, "shop", clock=FakeClock()):
        pass
    assert refused.value.code == "session.damaged"
    with pytest.raises(EvidenceError):
        report_session(root, "shop")


def test_a_fork_whose_home_cannot_be_copied_leaves_nothing(root: RootPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    create(root, "shop")
    with open_kept_session(root, "shop", clock=FakeClock()) as kept:
        home = kept.home
    home.mkdir(parents=True)
    (home / "note").write_text("unredacted")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copy2", refuse)
    before = sorted(home.parent.iterdir())
    with pytest.raises(Exception, match="No space left") as refused:
        fork_session(root, "shop", "copy", clock=FakeClock())
    assert getattr(refused.value, "code", None) == "machine.disk-full"
    assert sorted(home.parent.iterdir()) == before
    assert not session_paths(root, "copy").folder.exists()


@pytest.mark.requirement("session.mirror")
def test_verify_finds_turns_and_entries_that_no_record_has(root: RootPaths) -> None:
    create(root, "shop")
    path = session_paths(root, "shop").store
    assert verify_session(root, "shop").exit == 0
    with open_store(path) as store:
        say(store, "Never said.", to=sitting(9))
    assert verify_session(root, "shop").exit == 5
    with sqlite3.connect(path) as connection:
        connection.execute("delete from turn")
    [finding] = verify_session(root, "shop").findings
    assert finding.detail == "the entry run/session-1.1#1 belongs to turn 1, which did not complete or does not exist"


def test_rebuild_keeps_how_the_session_is_opened(root: RootPaths) -> None:
    create(root, "shop")
    rebuild_session(root, "shop")
    assert report_session(root, "shop").settings == SETTINGS
    store = session_paths(root, "shop").store
    store.write_bytes(b"x" * 5000)
    done = rebuild_session(root, "shop")
    assert done.kept_as == str(store.with_name("session.db.old"))
    assert "sandbox" in done.lost
    report = report_session(root, "shop")
    assert (report.settings, report.lost) == (None, done.lost)
    # It is lost for good, whatever was made again since.
    assert rebuild_session(root, "shop").lost == done.lost


def test_rebuild_of_a_store_that_is_gone_keeps_none_and_takes_the_settings_of_an_older_one(root: RootPaths) -> None:
    create(root, "shop")
    store = session_paths(root, "shop").store
    # As a rebuild leaves it that is cut off.
    store.replace(store.with_name("session.db.old"))
    done = rebuild_session(root, "shop")
    assert (done.kept_as, done.lost, report_session(root, "shop").settings) == (None, (), SETTINGS)


@pytest.mark.parametrize("statement", ["delete from session", "drop table session"])
def test_a_store_without_its_row_is_damaged(root: RootPaths, statement: str) -> None:
    create(root, "shop")
    with sqlite3.connect(session_paths(root, "shop").store) as connection:
        connection.execute(statement)
    with pytest.raises(EvidenceError) as refused:
        report_session(root, "shop")
    assert refused.value.code == "session.damaged"


PAGE_BYTES = 4096


def use(root: RootPaths) -> None:
    """Do what commands do: show, search, say and reset."""
    report_session(root, "shop")
    search_session(root, "shop", "milk", most=100)
    with open_kept_session(root, "shop", clock=FakeClock()) as kept:
        second = sitting(2)
        kept.store.begin_sitting(second)
        for turn in fold(Events(first=100).turn("More milk.")):
            assert kept.store.settle(turn, sitting=second)
        kept.store.reset()


def write_store(paths: SessionPaths, content: bytes) -> None:
    for file in paths.folder.glob("session.db*"):
        file.unlink()
    paths.store.write_bytes(content)


@pytest.mark.requirement("session.mirror")
@pytest.mark.parametrize("damage", ["zero the start", "zero", "flip", "flip one byte"])
def test_check_store_refuses_every_damage_that_a_command_would_refuse(root: RootPaths, damage: str) -> None:
    create(root, "shop")
    paths = session_paths(root, "shop")
    events = Events()
    with open_store(paths.store) as store:
        store.begin_sitting(sitting())
        for turn in fold([each for n in range(3) for each in events.turn(f"Milk {n}?", events.said("Milk. " * 300))]):
            store.settle(turn, sitting=sitting())
        store.close_sitting(sitting())
    good = paths.store.read_bytes()
    check_store(paths.store)
    use(root)
    refused = 0
    for page in range(0, len(good), PAGE_BYTES):
        content, size = bytearray(good), PAGE_BYTES
        if damage == "zero the start":
            size = 200
        elif damage == "flip one byte":
            size = 1
        changed = content[page : page + size]
        content[page : page + size] = bytes(size) if "zero" in damage else bytes(each ^ 0xFF for each in changed)
        write_store(paths, bytes(content))
        try:
            differences = check_store(paths.store)
        except EvidenceError:
            refused += 1
        else:
            if not differences:
                use(root)
    assert refused > len(good) // PAGE_BYTES // 2


@pytest.mark.parametrize(
    "statement",
    [
        "update turn set id = cast(x'ff' as text)",
        "update turn set id = 'x'",
        "update entry set id = id || 'x'",
        "update sitting set run_id = 'x'",
        "update turn_commit set state = 'x'",
        "update session set binding = x'7b7d'",
        "insert into replacement values ('x', x'7b7d')",
        "drop table held",
        "drop index entry_turn",
    ],
)
def test_verify_refuses_rows_that_commands_do_not_understand(root: RootPaths, statement: str) -> None:
    create(root, "shop")
    with open_store(session_paths(root, "shop").store) as store:
        store.begin_sitting(sitting())
        [turn] = fold(Events().turn("Milk?"))
        context = TurnContext(engine="e", version="1", policy="degrade", mode="per_turn", thread="start", reason="",
                              how="none")  # fmt: skip
        store.settle(replace(turn, context=context), sitting=sitting())
    check_store(session_paths(root, "shop").store)
    with sqlite3.connect(session_paths(root, "shop").store) as connection:
        connection.execute(statement)
    with pytest.raises(EvidenceError) as refused:
        verify_session(root, "shop")
    assert refused.value.code == "session.damaged"


@pytest.mark.parametrize(
    "statement",
    [
        "insert into entry_words (rowid, words) values (99, 'words')",
        "insert into entry_words (entry_words) values ('delete-all')",
    ],
)
def test_verify_finds_an_index_that_has_other_words_than_the_entries(root: RootPaths, statement: str) -> None:
    create(root, "shop")
    with open_store(session_paths(root, "shop").store) as store:
        store.begin_sitting(sitting())
        say(store, "Milk?", to=sitting())
    assert verify_session(root, "shop").exit == 4
    with sqlite3.connect(session_paths(root, "shop").store) as connection:
        connection.execute(statement)
    verified = verify_session(root, "shop")
    assert (verified.exit, "the index of words" in verified.findings[-1].detail) == (5, True)
