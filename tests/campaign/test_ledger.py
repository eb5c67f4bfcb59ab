"""The ledger: committed rows survive, many share one commit, and a file that is no ledger is refused in plain words."""

import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.errors import MachineError
from proctor.event.outcome import Outcome
from proctor.evidence import database
from proctor.ids import AttemptId, Digest, FlowId, MissionId, RunId, TrialId
from proctor.ledger import writer
from proctor.ledger.schema import VERSION
from proctor.ledger.writer import GroupCommit, Ledger, open_ledger
from proctor.plan.model import Limits, Plan, Trial
from proctor.spec.campaign_options import GatesSpec
from tests.plan.made import SCHEDULE
from tests.report.made import summary
from tests.runtime.twin import run

RUN = RunId("r")
TRIALS = 40
PLAN = Plan(
    campaign="c",
    digest=Digest("sha256:0"),
    flows=(),
    limits=Limits(attempt_ms=3, turn_ms=2, stall_ms=1),
    trials=tuple(
        Trial(id=TrialId(f"m.f.r{n}"), mission=MissionId("m"), flow=FlowId("f"), repeat=n, digest=Digest("sha256:0"))
        for n in range(1, TRIALS + 1)
    ),
    schedule=SCHEDULE,
    gates=GatesSpec(),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def book(path: Path) -> Iterator[Ledger]:
    with open_ledger(path) as book:
        book.begin(PLAN, run=RUN, at_ms=1, file="a.yaml", spec=Digest("sha256:s"))
        yield book


@asynccontextmanager
async def committing(book: Ledger, path: Path) -> AsyncIterator[GroupCommit]:
    commit = GroupCommit(book, path=path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit.run)
        yield commit
        commit.close()


def start(number: int) -> writer.Statement:
    trial = PLAN.trials[number - 1].id
    return writer.start_attempt(AttemptId(f"{trial}.1"), trial=trial, n=1, run=RUN, at_ms=2)


def attempts(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as reader:
        return reader.execute("select id, state, outcome, code from attempt order by rowid").fetchall()


@contextmanager
def busy_disk(path: Path) -> Iterator[None]:
    """No commit gets through inside."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield
        other.execute("rollback")


# ── what is in it ──


def test_a_running_attempt_is_settled_or_abandoned(book: Ledger, path: Path) -> None:
    attempt = AttemptId("m.f.r1.1")
    sealed = summary(attempt, outcome=Outcome.TIMED_OUT, code="limit.turn", verified=False)
    book.apply([start(1), start(2), start(3)])
    book.apply([writer.seal_attempt(attempt, sealed, at_ms=3)])
    book.apply([writer.abandon_attempt(AttemptId("m.f.r2.1"), code="machine.disk-full", at_ms=3)])
    assert attempts(path) == [
        ("m.f.r1.1", "sealed", "timed_out", "limit.turn"),
        ("m.f.r2.1", "abandoned", "unknown", "machine.disk-full"),
        ("m.f.r3.1", "running", None, None),
    ]
    assert [(each.id, each.state) for each in book.attempts()] == [
        ("m.f.r1.1", "sealed"),
        ("m.f.r2.1", "abandoned"),
        ("m.f.r3.1", "running"),
    ]
    assert [each.id for each in book.attempts(state="running")] == ["m.f.r3.1"]


def test_a_batch_is_applied_whole_or_not_at_all(book: Ledger, path: Path) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        book.apply([start(1), start(2), start(1)])
    assert attempts(path) == []
    book.apply([start(1)])
    assert len(attempts(path)) == 1


def test_a_number_that_no_column_can_hold_is_refused_in_plain_words(path: Path) -> None:
    enormous: writer.Statement = ("update attempt set tokens = ?", (10**30,))

    async def test() -> MachineError:
        with open_ledger(path) as book:
            async with committing(book, path) as commit:
                with pytest.raises(MachineError) as refused:
                    await commit.put(enormous)
            book.apply([enormous])
        return refused.value

    with pytest.raises(MachineError) as directly:
        run(test)
    what = "a value does not fit its column: Python int too large to convert to SQLite INTEGER"
    assert (directly.value.code, directly.value.what, directly.value.file) == ("run.harness", what, str(path))


def test_a_second_run_adds_no_second_trials(path: Path) -> None:
    for number in range(2):
        with open_ledger(path) as book:
            book.begin(PLAN, run=RunId(f"r{number}"), at_ms=1, file="a.yaml", spec=Digest("sha256:s"))
            book.end(RunId(f"r{number}"), at_ms=2)
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("select count(*) from trial").fetchone() == (TRIALS,)
        assert reader.execute("select id, ended_at_ms from run").fetchall() == [("r0", 2), ("r1", 2)]


def test_what_was_committed_is_there_after_a_crash_and_what_was_not_is_gone(
    book: Ledger, path: Path, tmp_path: Path
) -> None:
    book.apply([start(1)])
    book._connection.execute("begin immediate")
    book._connection.execute(*start(2))
    # The files as kill -9 would leave them: nothing closed, nothing tidied up.
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for file in tmp_path.glob("ledger.db*"):
        shutil.copy(file, crashed)
    book._connection.execute("rollback")
    assert (crashed / "ledger.db-wal").stat().st_size > 0
    with open_ledger(crashed / "ledger.db") as again:
        assert [each.id for each in again.attempts()] == ["m.f.r1.1"]
        again.apply([start(2)])


# ── many at once ──


def test_what_is_put_while_the_disk_is_busy_is_committed_together(book: Ledger, path: Path) -> None:
    said: list[str] = []
    book._connection.set_trace_callback(said.append)

    async def test() -> None:
        async with committing(book, path) as commit, anyio.create_task_group() as tasks:
            with busy_disk(path):
                tasks.start_soon(commit.put, start(1))
                await anyio.wait_all_tasks_blocked()
                for number in range(2, TRIALS + 1):
                    tasks.start_soon(commit.put, start(number))
                await anyio.wait_all_tasks_blocked()
                assert attempts(path) == []

    run(test)
    assert len(attempts(path)) == TRIALS
    assert said.count("commit") == 2, "the first by itself, and all that came meanwhile"


def test_a_put_is_durable_when_it_returns(book: Ledger, path: Path) -> None:
    async def test() -> None:
        async with committing(book, path) as commit:
            await commit.put(start(1))
            assert len(attempts(path)) == 1
            await commit.put(start(2), start(3))
            assert len(attempts(path)) == 3

    run(test)


def test_closing_waits_for_what_was_put_before(book: Ledger, path: Path) -> None:
    async def test() -> None:
        async with anyio.create_task_group() as putting, committing(book, path) as commit:
            for number in range(1, 6):
                putting.start_soon(commit.put, start(number))
            await anyio.wait_all_tasks_blocked()

    run(test)
    assert len(attempts(path)) == 5


def failures(book: Ledger, path: Path, statements: Sequence[writer.Statement]) -> list[str]:
    """All put at the same time; the codes they get."""
    found: list[str] = []

    async def test() -> None:
        async with committing(book, path) as commit, anyio.create_task_group() as tasks:

            async def put(statement: writer.Statement) -> None:
                try:
                    await commit.put(statement)
                except MachineError as error:
                    found.append(error.code)

            for statement in statements:
                tasks.start_soon(put, statement)

    run(test)
    return found


def test_a_full_disk_reaches_everybody_who_waits_and_the_next_one_may_succeed(book: Ledger, path: Path) -> None:
    large = [("insert into run (id, began_at_ms) values (?, 1)", (f"{number}" * 100_000,)) for number in range(3)]
    [pages] = book._connection.execute("pragma page_count").fetchone()
    book._connection.execute(f"pragma max_page_count = {pages}")
    assert failures(book, path, large) == ["machine.disk-full"] * 3
    book._connection.execute("pragma max_page_count = 100000")
    assert failures(book, path, large) == []


def test_a_trial_that_is_started_twice_is_our_own_fault(book: Ledger, path: Path) -> None:
    assert failures(book, path, [start(1), start(1)]) == ["run.harness"] * 2


def test_a_put_after_the_end_is_an_error_and_does_not_wait(book: Ledger, path: Path) -> None:
    async def test() -> list[str]:
        codes = []
        commit = GroupCommit(book, path=path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit.run)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        for _ in range(2):
            with pytest.raises(MachineError) as refused:
                await commit.put(start(1))
            codes.append(refused.value.what)
        return codes

    assert run(test) == ["the ledger is closed"] * 2


def test_whoever_waits_when_committing_is_cancelled_is_not_told_that_it_is_durable(book: Ledger, path: Path) -> None:
    async def test() -> dict[int, str]:
        told: dict[int, str] = {}
        commit = GroupCommit(book, path=path)

        async def put(number: int) -> None:
            try:
                await commit.put(start(number))
                told[number] = "durable"
            except MachineError as error:
                told[number] = error.what

        async with anyio.create_task_group() as putting, anyio.create_task_group() as tasks:
            with busy_disk(path):
                tasks.start_soon(commit.run)
                putting.start_soon(put, 1)
                await anyio.wait_all_tasks_blocked()
                putting.start_soon(put, 2)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
        return told

    # The commit under way waits in a thread for the disk, and cannot be taken back.
    assert run(test) == {1: "durable", 2: "the ledger is closed"}
    assert len(attempts(path)) == 1


# ── files that are no ledger ──


def refusal(path: Path) -> MachineError:
    before = path.read_bytes()
    with pytest.raises(MachineError) as refused, open_ledger(path):
        pytest.fail("it was opened")
    assert path.read_bytes() == before, "what is not ours is left as it is"
    assert refused.value.file == str(path)
    return refused.value


@pytest.mark.parametrize("content", [b"not a database" * 50, b"\0" * 5000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert refusal(path).code == "machine.ledger"


def test_a_damaged_ledger_is_refused(path: Path) -> None:
    with open_ledger(path) as book:
        book.begin(PLAN, run=RUN, at_ms=1, file="a.yaml", spec=Digest("sha256:s"))
    data = bytearray(path.read_bytes())
    data[100:4000] = b"\xff" * 3900
    path.write_bytes(data)
    assert refusal(path).code == "machine.ledger"


def test_a_database_of_something_else_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("create table cookies (name text)")
    error = refusal(path)
    assert (error.code, error.what) == ("machine.ledger", "not a Proctor database of this kind")


def test_a_ledger_of_a_newer_proctor_is_refused_with_both_versions(path: Path) -> None:
    with open_ledger(path) as book:
        book._connection.execute(f"pragma user_version = {VERSION + 1}")
    error = refusal(path)
    assert (error.code, error.what) == (
        "machine.ledger",
        "schema version is 2; this Proctor reads only 1",
    )


def test_a_place_where_no_file_can_be_is_a_machine_error(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "absent" / "ledger.db"):
        with pytest.raises(MachineError) as refused, open_ledger(place):
            pytest.fail("it was opened")
        assert refused.value.code == "machine.unwritable"


def test_a_ledger_that_another_holds_is_said_to_be_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    with open_ledger(path), busy_disk(path), pytest.raises(MachineError) as refused, open_ledger(path) as again:
        again.begin(PLAN, run=RUN, at_ms=1, file="a.yaml", spec=Digest("sha256:s"))
    assert refused.value.code == "machine.locked"
