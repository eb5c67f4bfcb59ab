"""Check a whole session.db: every page, every row, the index of words, and whether it can be written."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from proctor.context.store import DATABASE, SessionStore, read_store, refusing_damage, words_of
from proctor.errors import MachineError

_SCHEMA: Final = "select type, name, tbl_name, sql from sqlite_master order by type, name"

_WRITE_AND_READ_VERSIONS: Final = 18
"""Where the header of a file has the versions of its format for writers and readers: both 1, or both 2 with a log."""

# An index without positions can only be compared as the words of each entry.
_VOCABULARIES: Final = """
create virtual table temp.expected_words using fts5 (words, content = '', detail = none, columnsize = 0);
create virtual table temp.stored using fts5vocab (main, entry_words, instance);
create virtual table temp.expected using fts5vocab (temp, expected_words, instance)
"""

_WRONG_WORDS: Final = """
select * from (select term, doc from temp.stored except select term, doc from temp.expected) union all
select * from (select term, doc from temp.expected except select term, doc from temp.stored) limit 1
"""


def check_store(path: Path) -> tuple[str, ...]:
    """Return what the index of words has otherwise than the entries.

    Raises EvidenceError if a command could not read or write the session.db.

    Works on a copy, so that it can write, and so that another process may hold the session.
    """
    with read_store(path), refusing_damage(path):
        with path.open("rb") as file:
            file.seek(_WRITE_AND_READ_VERSIONS)
            if file.read(2) not in (b"\1\1", b"\2\2"):
                raise _damage("its header does not allow to write it")
        # A database without a name is a file that no other process sees.
        with DATABASE.read(path) as source, closing(sqlite3.connect("", isolation_level=None)) as copy:
            source.backup(copy)
            for problem in _find_problems(copy):
                raise _damage(problem)
            differences = tuple(_compare_words(copy))
            _write(copy)
            return differences


def _damage(what: str) -> MachineError:
    return MachineError(DATABASE.code, what)


def _find_problems(copy: sqlite3.Connection) -> Iterator[str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        for statement in filter(str.strip, DATABASE.schema.split(";")):
            new.execute(statement)
        if copy.execute(_SCHEMA).fetchall() != new.execute(_SCHEMA).fetchall():
            yield "its tables are not those of a session.db"
    for (found,) in copy.execute("pragma integrity_check(1)"):
        if found != "ok":
            yield found
    yield from _find_wrong_rows(copy)


def _write(copy: sqlite3.Connection) -> None:
    """Write what a turn and a reset write."""
    copy.execute("insert into entry_words (rowid, words) select coalesce(max(n), 0) + 1, 'word' from entry")
    copy.execute("insert into entry_words (entry_words) values ('optimize')")
    SessionStore(copy).reset()


def _find_wrong_rows(copy: sqlite3.Connection) -> Iterator[str]:
    """Decode every row. Yields those whose key is not that of their content."""
    store = SessionStore(copy)
    [rows] = copy.execute("select count(*) from session").fetchone()
    if rows != 1:
        yield "the row of the session is missing"
    keys = copy.execute("select n, run_id, attempt_id from sitting order by n")
    if [(each.n, each.run_id, each.attempt_id) for each in store.sittings()] != keys.fetchall():
        yield "a sitting is stored under another key"
    if [(each.n, each.id) for each in store.turns()] != copy.execute("select n, id from turn order by n").fetchall():
        yield "a turn is stored under another key"
    for id_, message in zip(copy.execute("select id from entry order by n"), store.messages(), strict=True):
        if id_ != (message.id,):
            yield f"the entry {message.id} is stored under another key"
    store.check_replacements()
    store.uncommitted(most=1)
    if store.binding[1] < 0 or store.setup.history_after < 0:
        yield "a number of the session is negative"


def _compare_words(copy: sqlite3.Connection) -> Iterator[str]:
    copy.execute("insert into entry_words (entry_words) values ('integrity-check')")
    for statement in _VOCABULARIES.split(";"):
        copy.execute(statement)
    numbers = copy.execute("select n from entry order by n")
    copy.execute("begin")
    copy.executemany(
        "insert into expected_words (rowid, words) values (?, ?)",
        ((n, words_of(message)) for (n,), message in zip(numbers, SessionStore(copy).messages(), strict=True)),
    )
    copy.execute("commit")
    for _, entry in copy.execute(_WRONG_WORDS):
        yield f"the index of words is wrong for entry {entry}"
