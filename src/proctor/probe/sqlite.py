"""Query a SQLite file that a product wrote: on a copy, read-only, and bounded in time, rows and size."""

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from proctor.errors import exhaustion_code
from proctor.probe.changes import Tree
from proctor.workspace.walk import EntryKind, open_regular

SIBLINGS: Final = ("-wal", "-shm", "-journal")
"""What SQLite appends to the name of a database for files that belong to it."""
MAX_DATABASE_BYTES: Final = 256 * 1024 * 1024
MAX_ROWS: Final = 1_000
MAX_RESULT_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of text and blobs in one result."""
_MAX_VALUE_BYTES: Final = 1024 * 1024
_STEPS: Final = 10_000
# A transaction was interrupted. To roll it back, SQLite would follow paths in this file.
_HOT_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")
_ALLOWED: Final = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    33,  # SQLITE_RECURSIVE, which the module does not name
}

SqlValue = str | int | float | bytes | None


class QueryError(Exception):
    """A database cannot be queried. The message says why."""


def query(tree: Tree, database: str, sql: str, *, folder: Path, within_s: float) -> list[list[SqlValue]]:
    """Return the rows of a query on a database of a view. Copies it to `folder` and removes the copy.

    Raises QueryError if the file is not there, is not a database, or the query fails or exceeds a limit.
    """
    with TemporaryDirectory(dir=folder) as place:
        copy = Path(place) / "copy.db"
        for suffix in ("", "-wal", "-journal"):
            _copy(tree, f"{database}{suffix}", into=copy.with_name(f"copy.db{suffix}"), is_required=not suffix)
        journal = copy.with_name("copy.db-journal")
        if journal.exists() and _begins_with(journal, _HOT_JOURNAL):
            raise QueryError("was left in the middle of a transaction")
        try:
            return _read(copy, sql, within_s=within_s)
        # A hostile file can hold text that is not UTF-8, or numbers out of range.
        except (sqlite3.Error, sqlite3.Warning, UnicodeError, OverflowError, MemoryError) as error:
            raise QueryError(f"cannot be queried ({error})") from error


def _copy(tree: Tree, path: str, *, into: Path, is_required: bool) -> None:
    entry = tree.get(path)
    if entry is None or entry.item.kind is not EntryKind.FILE:
        if is_required or entry is not None:
            raise QueryError("is not a file of the workspace")
        return
    if entry.item.size_bytes > MAX_DATABASE_BYTES:
        raise QueryError(f"is larger than {MAX_DATABASE_BYTES // 1024**2} MiB")
    try:
        with open_regular(entry.place) as source, into.open("xb") as target:
            shutil.copyfileobj(source, target)
    except OSError as error:
        if exhaustion_code(error.errno) is not None:
            raise
        raise QueryError(f"cannot be read ({error.strerror})") from error


def _begins_with(file: Path, data: bytes) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(data)) == data


def _read(file: Path, sql: str, *, within_s: float) -> list[list[SqlValue]]:
    deadline_s = time.monotonic() + within_s
    with closing(
        sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=1.0)
    ) as connection:
        # What the schema of the file contains must not run anything by itself.
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "temp_store=MEMORY", "mmap_size=0"):
            connection.execute(f"PRAGMA {pragma}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.text_factory = _decode
        connection.set_authorizer(_authorize)
        connection.set_progress_handler(lambda: int(time.monotonic() > deadline_s), _STEPS)
        rows = list[list[SqlValue]]()
        left = MAX_RESULT_BYTES
        for row in connection.execute(sql):
            rows.append(list(row))
            left -= sum(len(value) for value in row if isinstance(value, str | bytes))
            if len(rows) > MAX_ROWS or left < 0:
                raise QueryError(f"returned more than {MAX_ROWS:,} rows or {MAX_RESULT_BYTES // 1024**2} MiB")
    return rows


def _authorize(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _decode(data: bytes) -> str:
    return data.decode(errors="replace")
