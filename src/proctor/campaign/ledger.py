"""The campaign's ledger: which cells there are, which attempts claimed them, and how those ended."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from proctor.errors import MachineError
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptReport
from proctor.ids import AttemptId, CellId, RunId
from proctor.plan.model import Plan

VERSION = 1
# "PRCT": how the file says whose it is.
APPLICATION = 0x50524354
BUSY_S = 10.0

SCHEMA = """
create table cell (id text primary key, mission text not null, flow text not null, repeat integer not null,
                   digest text not null) strict;
create table run (id text primary key, began_at_ms integer not null, ended_at_ms integer) strict;
create table attempt (id text primary key, cell text not null references cell, n integer not null,
                      run text not null references run, state text not null, claimed_at_ms integer not null,
                      ended_at_ms integer, outcome text, code text, claimed integer, verified integer, met integer,
                      tool_calls integer, tokens integer, duration_ms integer,
                      unique (cell, n)) strict;
create index attempt_state on attempt (state);
"""

Statement = tuple[str, Sequence[Any]]


@contextmanager
def open_ledger(path: Path) -> Iterator["Ledger"]:
    """Open or make it. WAL and FULL: what a commit returned from survives a power cut."""
    try:
        # Only one thread at a time ever uses it: the caller's, then the group commit's.
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S)
    except sqlite3.Error as error:
        raise _refusal(error, path) from error
    try:
        is_new = _is_new(connection, path)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma foreign_keys = on")
        if is_new:
            marks = f"pragma application_id = {APPLICATION}; pragma user_version = {VERSION};"
            connection.executescript(f"begin; {SCHEMA} {marks} commit;")
        yield Ledger(connection)
    except _REFUSALS as error:
        raise _refusal(error, path) from error
    finally:
        connection.close()


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is still empty. Looked at before anything is changed: it may be somebody else's."""
    [tables] = connection.execute("select count(*) from sqlite_master").fetchone()
    [application] = connection.execute("pragma application_id").fetchone()
    [version] = connection.execute("pragma user_version").fetchone()
    if tables and application != APPLICATION:
        raise MachineError("machine.ledger", "a database of something else", file=str(path))
    if version > VERSION:
        what = f"of version {version}; this Proctor knows up to {VERSION}"
        raise MachineError("machine.ledger", what, file=str(path))
    return not tables


_CODES = {
    "SQLITE_FULL": "machine.disk-full",
    "SQLITE_BUSY": "machine.locked",
    "SQLITE_NOTADB": "machine.ledger",
    "SQLITE_CORRUPT": "machine.ledger",
    "SQLITE_CONSTRAINT": "run.harness",
}


# A number that is too large for a column is no error of sqlite's own.
_REFUSALS = (sqlite3.Error, OverflowError)


def _refusal(error: sqlite3.Error | OverflowError, path: Path) -> MachineError:
    if isinstance(error, OverflowError):
        return MachineError("run.harness", f"the ledger cannot hold it: {error}", file=str(path))
    # The name may have a third word that says more, as in SQLITE_CORRUPT_INDEX.
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    return MachineError(_CODES.get(name, "machine.unwritable"), str(error), file=str(path))


class Ledger:
    """Statements are applied in whole batches, so that many attempts share one sync of the disk."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def apply(self, statements: Sequence[Statement]) -> None:
        self._connection.execute("begin immediate")
        try:
            for sql, values in statements:
                self._connection.execute(sql, values)
            self._connection.execute("commit")
        except BaseException:
            # A full disk ends the transaction by itself, and then there is nothing to roll back.
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            raise

    def begin(self, plan: Plan, *, run: RunId, at_ms: int) -> None:
        """The plan's cells, once, and a new run."""
        cells: list[Statement] = [
            (
                "insert or ignore into cell values (?, ?, ?, ?, ?)",
                (cell.id, cell.mission, cell.flow, cell.repeat, cell.digest),
            )
            for cell in plan.cells
        ]
        self.apply([*cells, ("insert into run (id, began_at_ms) values (?, ?)", (run, at_ms))])

    def end(self, run: RunId, *, at_ms: int) -> None:
        self.apply([("update run set ended_at_ms = ? where id = ?", (at_ms, run))])

    def attempts_made(self) -> dict[CellId, int]:
        rows = self._connection.execute("select cell, max(n) from attempt group by cell")
        return {CellId(cell): n for cell, n in rows}


def claim(attempt: AttemptId, *, cell: CellId, n: int, run: RunId, at_ms: int) -> Statement:
    """A cell is being tried. Until it is settled, only its seal says how that went."""
    return (
        "insert into attempt (id, cell, n, run, state, claimed_at_ms) values (?, ?, ?, ?, 'claimed', ?)",
        (attempt, cell, n, run, at_ms),
    )


def settle(attempt: AttemptId, report: AttemptReport, *, at_ms: int) -> Statement:
    """The seal is on disk; the ledger follows it."""
    tokens = report.metrics.total_tokens
    columns = "ended_at_ms outcome code claimed verified met tool_calls tokens duration_ms".split()
    return (
        f"update attempt set state = 'sealed', {', '.join(f'{column} = ?' for column in columns)} where id = ?",  # noqa: S608
        (
            at_ms,
            report.outcome,
            report.code,
            report.claimed,
            report.verified,
            report.expectation.met,
            report.metrics.tool_calls,
            tokens,
            report.duration_ms,
            attempt,
        ),
    )


def abandon(attempt: AttemptId, *, code: str, at_ms: int) -> Statement:
    """There is no seal and there will be none."""
    return (
        "update attempt set state = 'abandoned', ended_at_ms = ?, outcome = ?, code = ? where id = ?",
        (at_ms, Outcome.UNKNOWN, code, attempt),
    )


@dataclass(slots=True)
class _Put:
    statements: Sequence[Statement]
    done: anyio.Event = field(default_factory=anyio.Event)
    is_durable: bool = False
    error: MachineError | None = None


class GroupCommit:
    """Collects what many attempts put while the disk is busy, and commits it together."""

    def __init__(self, ledger: Ledger, *, path: Path) -> None:
        self._ledger = ledger
        self._path = path
        self._inbox, self._waiting = anyio.create_memory_object_stream[_Put](256)

    async def run(self) -> None:
        """Commit until `close` is called and everything put before it is durable."""
        with self._inbox, self._waiting:
            try:
                async for first in self._waiting:
                    await self._commit([first, *self._queued()])
            finally:
                for put in self._queued():
                    put.done.set()

    def _queued(self) -> Iterator[_Put]:
        while self._waiting.statistics().current_buffer_used:
            yield self._waiting.receive_nowait()

    async def _commit(self, batch: Sequence[_Put]) -> None:
        try:
            statements = [statement for put in batch for statement in put.statements]
            await anyio.to_thread.run_sync(self._ledger.apply, statements)
            for put in batch:
                put.is_durable = True
        except _REFUSALS as error:
            for put in batch:
                put.error = _refusal(error, self._path)
        finally:
            for put in batch:
                put.done.set()

    async def put(self, *statements: Statement) -> None:
        """Returns when they are durable."""
        put = _Put(statements)
        try:
            await self._inbox.send(put)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise MachineError("machine.unwritable", "the ledger is closed", file=str(self._path)) from None
        await put.done.wait()
        if not put.is_durable:
            raise put.error or MachineError("machine.unwritable", "the ledger is closed", file=str(self._path))

    def close(self) -> None:
        self._inbox.close()
