"""SQLite files that say whose and of which version they are; whatever SQLite refuses is told in our codes."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from proctor.errors import MachineError

BUSY_S = 10.0

# A number that is too large for a column is no error of SQLite's own.
REFUSALS = (sqlite3.Error, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A kind of file. `application` is how it says whose it is; `code` is what one that is not it, or damaged, gets.

    `migrations` bring a file of a version to the next one; it is then of that version for good.
    """

    application: int
    version: int
    schema: str
    code: str
    synchronous: str
    migrations: Mapping[int, str] = field(default_factory=dict)

    @contextmanager
    def open(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Open or make it. To be used by one thread at a time, whichever."""
        try:
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S)
        except sqlite3.Error as error:
            raise self.refusal(error, path) from error
        try:
            is_new = self._is_new(connection, path)
            connection.execute("pragma journal_mode = wal")
            connection.execute(f"pragma synchronous = {self.synchronous}")
            connection.execute("pragma foreign_keys = on")
            if is_new:
                self._make(connection, path)
            elif _version(connection) < self.version:
                self._migrate(connection)
            yield connection
        except REFUSALS as error:
            raise self.refusal(error, path) from error
        finally:
            connection.close()

    @contextmanager
    def read(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Open what is there. Nothing is made."""
        try:
            connection = sqlite3.connect(address(path), uri=True, timeout=BUSY_S)
        except sqlite3.Error as error:
            raise self.refusal(error, path) from error
        try:
            self._is_new(connection, path)
            yield connection
        except (*REFUSALS, UnicodeError) as error:
            raise self.refusal(error, path) from error
        finally:
            connection.close()

    def _is_new(self, connection: sqlite3.Connection, path: Path) -> bool:
        """Whether the file is still empty. Looked at before anything is changed: it may be somebody else's."""
        [tables] = connection.execute("select count(*) from sqlite_master").fetchone()
        [application] = connection.execute("pragma application_id").fetchone()
        version = _version(connection)
        if tables and application != self.application:
            raise MachineError(self.code, "a database of something else", file=str(path))
        if version > self.version:
            what = f"of version {version}; this Proctor knows up to {self.version}"
            raise MachineError(self.code, what, file=str(path))
        return not tables

    def _make(self, connection: sqlite3.Connection, path: Path) -> None:
        # Looked at again under the lock: another Proctor may have made it meanwhile.
        connection.execute("begin immediate")
        if self._is_new(connection, path):
            for statement in filter(str.strip, self.schema.split(";")):
                connection.execute(statement)
            connection.execute(f"pragma application_id = {self.application}")
            connection.execute(f"pragma user_version = {self.version}")
        connection.execute("commit")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Whole or not at all."""
        connection.execute("begin immediate")
        try:
            # Looked at again under the lock.
            for version in range(_version(connection), self.version):
                for statement in filter(str.strip, self.migrations.get(version, "").split(";")):
                    connection.execute(statement)
            connection.execute(f"pragma user_version = {self.version}")
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise

    def refusal(self, error: Exception, path: Path) -> MachineError:
        if isinstance(error, OverflowError):
            return MachineError("run.harness", f"it cannot hold it: {error}", file=str(path))
        # The name may have a third word that says more, as in SQLITE_CORRUPT_INDEX.
        name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
        # A table or a column that is not there, or is another, is an error without a name of its own.
        codes = {**dict.fromkeys(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR"), self.code), **_CODES}
        return MachineError(codes.get(name, "machine.unwritable"), str(error), file=str(path))


def _version(connection: sqlite3.Connection) -> int:
    [version] = connection.execute("pragma user_version").fetchone()
    return int(version)


_CODES = {
    "SQLITE_FULL": "machine.disk-full",
    "SQLITE_BUSY": "machine.locked",
    "SQLITE_CONSTRAINT": "run.harness",
}


def address(path: Path) -> str:
    """How a reader opens it.

    One of a WAL file makes files beside it and cannot take them away again. Without a log there is no writer, the file
    is whole by itself, and nothing need be made: so a copy on a read-only disk can be read too.
    """
    has_log = path.with_name(f"{path.name}-wal").exists()
    return f"file:{quote(str(path.absolute()))}?{'mode=ro' if has_log else 'immutable=1'}"
