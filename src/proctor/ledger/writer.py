"""Write a campaign's ledger: statements in batches, so that many attempts share one sync of the disk."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from proctor import decoding
from proctor.errors import MachineError
from proctor.event.outcome import Outcome
from proctor.evidence.database import REFUSALS
from proctor.evidence.summary import AttemptSummary
from proctor.evidence.sync import GATHER_S
from proctor.ids import AttemptId, Digest, RunId, TrialId
from proctor.ledger.schema import ATTEMPTS, DATABASE, REPLACEMENTS, LedgerAttempt, LedgerReplacement, decode_attempts
from proctor.plan.model import Plan

_RUN_TIMES = """
select run.began_at_ms,
       max(coalesce(run.ended_at_ms, 0), coalesce(max(attempt.ended_at_ms), 0), coalesce(max(attempt.started_at_ms), 0))
from run left join attempt on attempt.run = run.id group by run.id
"""

Statement = tuple[str, Sequence[Any]]


@contextmanager
def open_ledger(path: Path) -> Iterator["Ledger"]:
    """Open a ledger, or create it. Only one thread may use it at a time."""
    with DATABASE.open(path) as connection:
        yield Ledger(connection)


class Ledger:
    """An open ledger."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def apply(self, statements: Sequence[Statement]) -> None:
        """Apply all statements in one transaction, or none."""
        self._connection.execute("begin immediate")
        try:
            for sql, values in statements:
                self._connection.execute(sql, values)
            self._connection.execute("commit")
        except BaseException:
            # SQLite ends the transaction itself when the disk is full; then there is nothing to roll back.
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            raise

    def begin(
        self,
        plan: Plan,
        *,
        run: RunId,
        at_ms: int,
        file: str,
        spec: Digest,
        replacements: Sequence[LedgerReplacement] = (),
    ) -> None:
        """Insert the campaign and the plan's trials, if they are not there yet, a new run, and what it replaces.

        `spec` is the digest of the bytes of `file`.
        """
        campaign: Statement = (
            "insert or ignore into campaign values (1, ?, ?, ?, ?)",
            (file, spec, plan.digest, at_ms),
        )
        trials: list[Statement] = [
            (
                "insert or ignore into trial values (?, ?, ?, ?, ?)",
                (trial.id, trial.mission, trial.flow, trial.repeat, trial.digest),
            )
            for trial in plan.trials
        ]
        replaced: list[Statement] = [
            ("insert or replace into replacement values (?, ?, ?, ?, ?)", msgspec.structs.astuple(each))
            for each in replacements
        ]
        started: Statement = ("insert into run (id, began_at_ms) values (?, ?)", (run, at_ms))
        self.apply([campaign, *trials, started, *replaced])
        # Into the file itself: if the write-ahead log is lost, the campaign is still known.
        self._connection.execute("pragma wal_checkpoint(passive)")

    def end(self, run: RunId, *, at_ms: int, how: str = "done") -> None:
        """Record the end of a run. `how` is "done" or what stopped it, such as "drained", "stopped" or "budget"."""
        self.apply([("update run set ended_at_ms = ?, ended = ? where id = ?", (at_ms, how, run))])

    def attempts(self, *, state: str | None = None) -> list[LedgerAttempt]:
        """Return all attempts, or those in one state, ordered by trial and number. Raises EvidenceError."""
        where = "" if state is None else "where state = :state"
        return decode_attempts(self._connection.execute(f"{ATTEMPTS} {where} order by trial, n", {"state": state}))

    def replacements(self) -> list[LedgerReplacement]:
        """Return the requests to replace a result, oldest first."""
        return decoding.convert(self._connection.execute(REPLACEMENTS).fetchall(), list[LedgerReplacement])

    def runs(self) -> list[RunId]:
        """Return the ids of all runs, sorted."""
        return [RunId(id_) for (id_,) in self._connection.execute("select id from run order by id")]

    def took_ms(self) -> int:
        """Return the time all runs took, without the time between them. A killed run ends with its last attempt."""
        return sum(max(0, ended - began) for began, ended in self._connection.execute(_RUN_TIMES))

    def spent(self) -> tuple[float, int]:
        """Return what the ended attempts cost in US dollars, and how many of them have an unknown cost."""
        sql = "select coalesce(sum(usd), 0.0), count(*) - count(usd) from attempt where state != 'running'"
        usd, unknown = self._connection.execute(sql).fetchone()
        return usd, unknown


def restore_run(run: RunId, *, at_ms: int) -> Statement:
    """Insert a run that the ledger may have lost."""
    return ("insert or ignore into run (id, began_at_ms) values (?, ?)", (run, at_ms))


def start_attempt(attempt: AttemptId, *, trial: TrialId, n: int, run: RunId, at_ms: int) -> Statement:
    """Insert an attempt as running."""
    return (
        "insert into attempt (id, trial, n, run, state, started_at_ms) values (?, ?, ?, ?, 'running', ?)",
        (attempt, trial, n, run, at_ms),
    )


def seal_attempt(
    attempt: AttemptId,
    summary: AttemptSummary,
    *,
    at_ms: int,
    retry_at_ms: int | None = None,
    usd: float | None = None,
) -> Statement:
    """Record that an attempt was sealed. Apply it only once the seal is durable.

    `retry_at_ms` is when its trial is due again, if another attempt follows.
    """
    columns = "ended_at_ms outcome code runtime tokens usd retry_at_ms summary".split()
    return (
        f"update attempt set state = 'sealed', {', '.join(f'{column} = ?' for column in columns)} where id = ?",  # noqa: S608
        (
            at_ms,
            summary.outcome,
            summary.code,
            summary.runtime_id,
            None if summary.tokens is None else summary.tokens.total,
            usd,
            retry_at_ms,
            msgspec.json.encode(summary).decode(),
            attempt,
        ),
    )


def abandon_attempt(
    attempt: AttemptId, *, code: str, at_ms: int, tokens: int | None = None, usd: float | None = None
) -> Statement:
    """Record that an attempt will never be sealed. `tokens` and `usd` are what its frames show that it used."""
    columns = "state = 'abandoned', ended_at_ms = ?, outcome = ?, code = ?, tokens = ?, usd = ?"
    return (
        f"update attempt set {columns} where id = ?",  # noqa: S608
        (at_ms, Outcome.UNKNOWN, code, tokens, usd, attempt),
    )


@dataclass(slots=True)
class _PendingCommit:
    statements: Sequence[Statement]
    done: anyio.Event = field(default_factory=anyio.Event)
    is_durable: bool = False
    error: MachineError | None = None


class GroupCommit:
    """Collects statements from many tasks while the disk is busy, and commits them together."""

    def __init__(self, ledger: Ledger, *, path: Path) -> None:
        self._ledger = ledger
        self._path = path
        self._inbox, self._waiting = anyio.create_memory_object_stream[_PendingCommit](256)

    async def run(self) -> None:
        """Commit until `close` is called and everything put before it is durable."""
        with self._inbox, self._waiting:
            try:
                async for first in self._waiting:
                    await anyio.sleep(GATHER_S)
                    await self._commit([first, *self._queued()])
            finally:
                for pending in self._queued():
                    pending.done.set()

    def _queued(self) -> Iterator[_PendingCommit]:
        while self._waiting.statistics().current_buffer_used:
            yield self._waiting.receive_nowait()

    async def _commit(self, batch: Sequence[_PendingCommit]) -> None:
        try:
            statements = [statement for pending in batch for statement in pending.statements]
            await anyio.to_thread.run_sync(self._ledger.apply, statements)
            for pending in batch:
                pending.is_durable = True
        except REFUSALS as error:
            for pending in batch:
                pending.error = DATABASE.refusal(error, self._path)
        finally:
            for pending in batch:
                pending.done.set()

    async def put(self, *statements: Statement) -> None:
        """Commit these statements; returns when they are durable. Raises MachineError if they cannot be."""
        pending = _PendingCommit(statements)
        try:
            await self._inbox.send(pending)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise MachineError("machine.unwritable", "the ledger is closed", file=str(self._path)) from None
        await pending.done.wait()
        if not pending.is_durable:
            raise pending.error or MachineError("machine.unwritable", "the ledger is closed", file=str(self._path))

    def close(self) -> None:
        """Accept no more statements."""
        self._inbox.close()
