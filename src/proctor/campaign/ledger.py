"""The campaign's ledger: which cells there are, which attempts claimed them, and how those ended."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from proctor.campaign.durable import GATHER_S
from proctor.errors import MachineError
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptReport
from proctor.evidence.database import REFUSALS, Database
from proctor.evidence.tally import tally_of
from proctor.ids import AttemptId, CellId, Digest, FlowId, RunId, StrategyId
from proctor.plan.model import Plan
from proctor.plan.standing import Tried

VERSION = 2
# "PRCT": how the file says whose it is.
APPLICATION = 0x50524354

SCHEMA = """
create table campaign (one integer primary key check (one = 1), file text not null, spec text not null,
                       plan text not null, began_at_ms integer not null) strict;
create table cell (id text primary key, mission text not null, flow text not null, repeat integer not null,
                   digest text not null) strict;
create table run (id text primary key, began_at_ms integer not null, ended_at_ms integer, ended text) strict;
create table attempt (id text primary key, cell text not null references cell, n integer not null,
                      run text not null references run, state text not null, claimed_at_ms integer not null,
                      ended_at_ms integer, outcome text, code text, claimed integer, verified integer, met integer,
                      tool_calls integer, tokens integer, duration_ms integer, strategy text,
                      retry_at_ms integer, usd real, tally text,
                      unique (cell, n)) strict;
create index attempt_state on attempt (state);
"""

# What a campaign was before it was told where its spec lies: it can be resumed if somebody says so.
_FROM_1 = """
create table campaign (one integer primary key check (one = 1), file text not null, spec text not null,
                       plan text not null, began_at_ms integer not null) strict;
alter table run add column ended text;
alter table attempt add column strategy text;
alter table attempt add column retry_at_ms integer;
alter table attempt add column usd real;
alter table attempt add column tally text;
"""

_TRIED = """
select id, cell, n, run, state, claimed_at_ms, ended_at_ms, outcome, code, retry_at_ms, usd, strategy from attempt
"""

_ORIGIN = "select file, spec, plan from campaign"

_COSTS = """
select count(usd), coalesce(sum(usd), 0.0) from attempt join cell on cell.id = attempt.cell
where flow = ? and state = 'sealed'
"""

_RUNS = """
select run.began_at_ms,
       max(coalesce(run.ended_at_ms, 0), coalesce(max(attempt.ended_at_ms), 0), coalesce(max(attempt.claimed_at_ms), 0))
from run left join attempt on attempt.run = run.id group by run.id
"""

Statement = tuple[str, Sequence[Any]]


DATABASE = Database(
    application=APPLICATION,
    version=VERSION,
    schema=SCHEMA,
    code="machine.ledger",
    # With WAL: what a commit returned from survives a power cut.
    synchronous="full",
    migrations={1: _FROM_1},
)


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """What a campaign began with: where its spec lies, the digest of its bytes, and that of the plan.

    `file` is empty where the spec was built on the spot.
    """

    file: str
    spec: Digest
    plan: Digest


@contextmanager
def open_ledger(path: Path) -> Iterator["Ledger"]:
    """Open or make it. Only one thread at a time ever uses it: the caller's, then the group commit's."""
    with DATABASE.open(path) as connection:
        yield Ledger(connection)


def read_origin(path: Path) -> Origin | None:
    """What the campaign of a ledger began with; None in one that was made before it was kept."""
    with DATABASE.read(path) as connection:
        [tables] = connection.execute("select count(*) from sqlite_master where name = 'campaign'").fetchone()
        row = connection.execute(_ORIGIN).fetchone() if tables else None
        return None if row is None else msgspec.convert(row, Origin)


def has_begun(path: Path) -> bool:
    """Whether there is a ledger, and a run in it. Nothing is made."""
    if not path.is_file():
        return False
    with DATABASE.read(path) as connection:
        [tables] = connection.execute("select count(*) from sqlite_master").fetchone()
        return bool(tables) and connection.execute("select 1 from run").fetchone() is not None


def read_costs(path: Path, *, flow: FlowId) -> tuple[int, float]:
    """How many sealed attempts of a flow have a known cost, and what they cost together."""
    with DATABASE.read(path) as connection:
        count, usd = connection.execute(_COSTS, (flow,)).fetchone()
        return count, usd


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

    def begin(self, plan: Plan, *, run: RunId, at_ms: int, file: str, spec: Digest) -> None:
        """What the campaign is and the plan's cells, once, and a new run. `spec` is the digest of `file`'s bytes."""
        whole: Statement = (
            "insert or ignore into campaign values (1, ?, ?, ?, ?)",
            (file, spec, plan.digest, at_ms),
        )
        cells: list[Statement] = [
            (
                "insert or ignore into cell values (?, ?, ?, ?, ?)",
                (cell.id, cell.mission, cell.flow, cell.repeat, cell.digest),
            )
            for cell in plan.cells
        ]
        self.apply([whole, *cells, ("insert into run (id, began_at_ms) values (?, ?)", (run, at_ms))])
        # Into the file itself: who loses the log beside it loses what the disk has too, and not the campaign.
        self._connection.execute("pragma wal_checkpoint(passive)")

    def end(self, run: RunId, *, at_ms: int, how: str = "done") -> None:
        """`how`: "done", or what kept it from going on to the end, such as "drained", "stopped" or "budget"."""
        self.apply([("update run set ended_at_ms = ?, ended = ? where id = ?", (at_ms, how, run))])

    def tried(self, *, state: str | None = None) -> list[Tried]:
        """Every attempt, or those in that state; those of one cell in order."""
        where = "" if state is None else "where state = :state"
        rows = self._connection.execute(f"{_TRIED} {where} order by cell, n", {"state": state})
        try:
            return msgspec.convert(rows.fetchall(), list[Tried], strict=False)
        except msgspec.ValidationError as error:
            raise MachineError(
                "machine.ledger", f"it holds what no Proctor wrote: {error}", file="ledger.db"
            ) from error

    def runs(self) -> list[RunId]:
        """Every run, in the order of their ids."""
        return [RunId(id_) for (id_,) in self._connection.execute("select id from run order by id")]

    def took_ms(self) -> int:
        """What its runs took, without what lay between them. One that was cut off took as long as it was heard of."""
        rows = self._connection.execute(_RUNS)
        return sum(max(0, ended - began) for began, ended in rows)

    def spent(self) -> tuple[float, int]:
        """What its attempts cost that are over, and of how many of them that is not known."""
        sql = "select coalesce(sum(usd), 0.0), count(*) - count(usd) from attempt where state != 'claimed'"
        usd, unknown = self._connection.execute(sql).fetchone()
        return usd, unknown


def rejoin(run: RunId, *, at_ms: int) -> Statement:
    """A run that the ledger may have lost."""
    return ("insert or ignore into run (id, began_at_ms) values (?, ?)", (run, at_ms))


def claim(attempt: AttemptId, *, cell: CellId, n: int, run: RunId, at_ms: int) -> Statement:
    """A cell is being tried. Until it is settled, only its seal says how that went."""
    return (
        "insert into attempt (id, cell, n, run, state, claimed_at_ms) values (?, ?, ?, ?, 'claimed', ?)",
        (attempt, cell, n, run, at_ms),
    )


def settle(
    attempt: AttemptId,
    report: AttemptReport,
    *,
    at_ms: int,
    strategy: StrategyId | None = None,
    retry_at_ms: int | None = None,
    usd: float | None = None,
) -> Statement:
    """The seal is on disk; the ledger follows it. `retry_at_ms` is when the cell is tried again, if it is to be."""
    tokens = report.metrics.total_tokens
    columns = (
        "ended_at_ms outcome code claimed verified met tool_calls tokens duration_ms strategy retry_at_ms usd tally"
    ).split()
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
            strategy,
            retry_at_ms,
            usd,
            msgspec.json.encode(tally_of(report)).decode(),
            attempt,
        ),
    )


def abandon(
    attempt: AttemptId, *, code: str, at_ms: int, tokens: int | None = None, usd: float | None = None
) -> Statement:
    """There is no seal and there will be none. `tokens` and `usd` are what it had used when it was last heard of."""
    columns = "state = 'abandoned', ended_at_ms = ?, outcome = ?, code = ?, tokens = ?, usd = ?"
    return (
        f"update attempt set {columns} where id = ?",  # noqa: S608
        (at_ms, Outcome.UNKNOWN, code, tokens, usd, attempt),
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
                    await anyio.sleep(GATHER_S)
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
        except REFUSALS as error:
            for put in batch:
                put.error = DATABASE.refusal(error, self._path)
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
