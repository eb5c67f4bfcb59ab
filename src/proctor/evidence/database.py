"""SQLite files that carry an application id and a schema version. SQLite's errors become MachineErrors."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from proctor.errors import MachineError

BUSY_S = 10.0
"""How long to wait for another process's lock, in seconds."""

_LOG_INDEX_BYTES: Final = 32 * 1024
"""The size by which SQLite extends the index of a log."""

# A number too large for a column raises OverflowError, which is not a sqlite3.Error.
REFUSALS = (sqlite3.Error, OverflowError, UnicodeDecodeError)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Make all changes in the `with` block, or none if it raises."""
    connection.execute("begin immediate")
    try:
        yield
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A kind of database file."""

    application: int
    """SQLite `application_id` of the files of this kind."""
    version: int
    """Schema version that this Proctor writes, and the only one that it reads."""
    schema: str
    """SQL statements that create the tables, separated by `;`."""
    code: str
    """Error code for a file of another kind or version, or a damaged file."""
    newer_code: str | None = None
    """Error code for a file of a newer version. None for `code`."""
    synchronous: str
    """Value of `pragma synchronous`."""
    page_bytes: int = 4096
    """Size of the pages of a new file. A row that fits into a page only once leaves the rest of it empty."""

    @contextmanager
    def open(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Open or create a file for writing. The connection may be used by any thread, but only one at a time.

        Raises MachineError if the file cannot be opened or a statement in the `with` block fails.
        """
        try:
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S)
        except sqlite3.Error as error:
            raise self.refusal(error, path) from error
        try:
            is_new = self._is_new(connection, path)
            connection.execute(f"pragma page_size = {self.page_bytes}")
            connection.execute("pragma journal_mode = wal")
            connection.execute(f"pragma synchronous = {self.synchronous}")
            connection.execute("pragma foreign_keys = on")
            if is_new:
                self._make(connection, path)
            yield connection
        except REFUSALS as error:
            raise self.refusal(error, path) from error
        finally:
            connection.close()

    @contextmanager
    def read(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Open an existing file for reading. Creates nothing. The connection may be used as that of `open`.

        Raises MachineError if the file cannot be opened or a statement in the `with` block fails.
        """
        try:
            connection = sqlite3.connect(address(path), uri=True, check_same_thread=False, timeout=BUSY_S)
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
        """Whether the file has no tables yet. Checked before any change, because the file may not be a Proctor file.

        Raises MachineError if it is of another kind or of another version.
        """
        [tables] = connection.execute("select count(*) from sqlite_master").fetchone()
        [application] = connection.execute("pragma application_id").fetchone()
        [version] = connection.execute("pragma user_version").fetchone()
        if tables and application != self.application:
            raise MachineError(
                self.code,
                "not a Proctor database of this kind",
                file=str(path),
            )
        if version != self.version and (tables or version):
            what = f"schema version is {version}; this Proctor reads only {self.version}"
            code = self.newer_code if version > self.version else None
            raise MachineError(code or self.code, what, file=str(path))
        return not tables

    def _make(self, connection: sqlite3.Connection, path: Path) -> None:
        # Checked again under the lock: another Proctor may have created the tables meanwhile.
        connection.execute("begin immediate")
        if self._is_new(connection, path):
            for statement in filter(str.strip, self.schema.split(";")):
                connection.execute(statement)
            connection.execute(f"pragma application_id = {self.application}")
            connection.execute(f"pragma user_version = {self.version}")
        connection.execute("commit")

    def refusal(self, error: Exception, path: Path) -> MachineError:
        """Return the MachineError for an error of SQLite or of a value."""
        if isinstance(error, OverflowError):
            return MachineError("run.harness", f"a value does not fit its column: {error}", file=str(path))
        if isinstance(error, UnicodeDecodeError) or _is_undecodable(error):
            return MachineError(self.code, f"a value is no text: {error}", file=str(path))
        # An extended name has a third word, as in SQLITE_CORRUPT_INDEX.
        name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
        # A missing or different table or column is only SQLITE_ERROR.
        codes = {**dict.fromkeys(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR"), self.code), **_CODES}
        code = codes.get(name, "machine.unwritable")
        # SQLite reports SQLITE_FULL for its database and log, but not for the index of the log.
        if name == "SQLITE_IOERR" and _is_disk_full(path):
            code = "machine.disk-full"
        return MachineError(code, str(error), file=str(path))


def _is_undecodable(error: Exception) -> bool:
    """Return whether Python could not decode a text column, which is the only OperationalError that is not SQLite's."""
    return isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorname")


def _is_disk_full(path: Path) -> bool:
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LOG_INDEX_BYTES


_CODES = {
    "SQLITE_FULL": "machine.disk-full",
    "SQLITE_BUSY": "machine.locked",
    "SQLITE_CONSTRAINT": "run.harness",
}


def address(path: Path) -> str:
    """Return the SQLite URI with which a reader opens a file.

    A reader of a WAL database creates `-wal` and `-shm` files and cannot remove them. Without a `-wal` file there is no
    writer and the file is complete, so it is opened as immutable and nothing is created. That also allows a copy on a
    read-only disk.
    """
    has_log = path.with_name(f"{path.name}-wal").exists()
    return f"file:{quote(str(path.absolute()))}?{'mode=ro' if has_log else 'immutable=1'}"
