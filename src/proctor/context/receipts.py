"""Receipts of the turns that an engine has taken in: keys and digests, in a file of the engine's folder."""

import sqlite3
from pathlib import Path
from typing import Final

from proctor.canonical import digest_bytes
from proctor.context.engine import CommitResult, TurnCommit
from proctor.context.payload import json_text
from proctor.errors import InputError, MachineError
from proctor.evidence.database import Database, transaction
from proctor.ids import Digest

NAME: Final = "receipts.db"

DATABASE: Final = Database(
    application=0x50524352,  # "PRCR"
    version=1,
    schema="create table receipt (key text primary key, sha256 text not null) strict, without rowid",
    code="engine.damaged",
    newer_code="engine.newer",
    # A turn that was reported as committed must survive a power cut.
    synchronous="full",
)


class CommitReceipts:
    """The receipts of one engine for one session. Every method reads or changes the file, and is durable on return.

    They store nothing of what was said. Every method raises MachineError if the file cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def has(self, turn: TurnCommit) -> bool:
        """Return whether there is a receipt for a turn. Raises InputError if there is one with other messages."""
        if not self._path.exists():
            return False
        with DATABASE.open(self._path) as connection:
            return _find(connection, turn)

    def add(self, turn: TurnCommit) -> CommitResult:
        """Add the receipt for a turn, unless there is one. Raises InputError if there is one with other messages."""
        with DATABASE.open(self._path) as connection, transaction(connection):
            if _find(connection, turn):
                return "duplicate"
            connection.execute("insert into receipt values (?, ?)", (turn.key, _digest(turn)))
            return "committed"

    def find_damage(self) -> str | None:
        """Return what is damaged in the file. None if the file does not exist, or nothing is."""
        if not self._path.exists():
            return None
        try:
            with DATABASE.read(self._path) as connection:
                connection.execute("select key, sha256 from receipt limit 1").fetchone()
                [found] = connection.execute("pragma integrity_check (1)").fetchone()
        except MachineError as error:
            if error.code != DATABASE.code:
                raise
            return error.what
        return None if found == "ok" else str(found)

    def clear(self) -> None:
        """Remove all receipts."""
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(NAME + suffix).unlink(missing_ok=True)


def _find(connection: sqlite3.Connection, turn: TurnCommit) -> bool:
    row = connection.execute("select sha256 from receipt where key = ?", (turn.key,)).fetchone()
    if row is not None and row[0] != _digest(turn):
        raise InputError("engine.key-reused", f"turn {turn.key} was committed before, with other messages")
    return row is not None


def _digest(turn: TurnCommit) -> Digest:
    """Return the digest of what was said. A turn that is committed again may have another budget or usage."""
    said = [[message.id, message.part, message.is_tainted] for message in turn.messages]
    return digest_bytes(json_text(said).encode("utf-8", "surrogatepass"))
