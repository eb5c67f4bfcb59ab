"""Finds damage in the database of the engine. Reads all of it."""

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

import msgspec

from proctor.context.engines.lossless.packed_messages import unpack, unpack_ids
from proctor.context.engines.lossless.stored_summary import summary_id
from proctor.ids import EntryId

_TABLES: Final = "select type, name, sql from sqlite_master order by type, name"
_SUMMARIES: Final = "select id, level, first, past, text, sources, parent from summary order by first, past"


class _SummaryRow(NamedTuple):
    id: EntryId
    level: int
    first: int
    past: int
    text: str
    sources: bytes | None
    parent: EntryId | None


def find_damage(connection: sqlite3.Connection, *, schema: str) -> str | None:
    """Return what is damaged, of a file with this schema; None if nothing is.

    Raises sqlite3.Error if SQLite finds it.
    """
    try:
        return next(_damages(connection, schema), None)
    except (msgspec.DecodeError, zlib.error, ValueError, TypeError) as error:
        return f"a row cannot be read: {error}"


def _damages(connection: sqlite3.Connection, schema: str) -> Iterator[str]:
    [found] = connection.execute("pragma integrity_check (1)").fetchone()
    if found != "ok":
        yield str(found)
    if not connection.execute("select count(*) from sqlite_master").fetchone()[0]:
        # New: its creation was cut off.
        return
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(schema)
        if connection.execute(_TABLES).fetchall() != empty.execute(_TABLES).fetchall():
            yield "it has other tables"
    ids: list[EntryId] = []
    yield from _segment_damages(connection, ids)
    yield from _summary_damages(connection, ids)


def _segment_damages(connection: sqlite3.Connection, ids: list[EntryId]) -> Iterator[str]:
    """Compare segments with their entries, whose ids are added to the list."""
    for n, position, entries, packed, dictionary in connection.execute(
        "select segment.n, position, entries, messages, data from segment"
        " left join dictionary on dictionary.n = dictionary order by position"
    ):
        messages = unpack(packed, dictionary)
        if position != len(ids) or entries != len(messages):
            yield f"segment {n} has {len(messages)} entries from {len(ids)}, not {entries} from {position}"
        ids += (message.id for message in messages)


def _summary_damages(connection: sqlite3.Connection, ids: Sequence[EntryId]) -> Iterator[str]:
    """Compare each summary with what it covers."""
    rows = [_SummaryRow(*row) for row in connection.execute(_SUMMARIES)]
    covered_by: dict[EntryId | None, list[_SummaryRow]] = {}
    for row in rows:
        covered_by.setdefault(row.parent, []).append(row)
    for row in rows:
        covered: Sequence[EntryId]
        if row.level == 1:
            covered = unpack_ids(row.sources or b"")
            is_whole = covered == tuple(ids[row.first : row.past])
        else:
            children = covered_by.get(row.id, [])
            covered = [child.id for child in children]
            is_whole = _is_chain(children, first=row.first, past=row.past)
        body = row.text.partition("\n")[2]
        if not is_whole:
            yield f"{row.id} does not cover the entries from {row.first} to {row.past}"
        if row.id != summary_id(body, level=row.level, covered=covered):
            yield f"{row.id} has another text than it was made with"
    shown = covered_by.get(None, [])
    if not _is_chain(shown, first=0, past=shown[-1].past if shown else 0):
        yield "the summaries do not follow each other from the beginning"


def _is_chain(rows: Sequence[_SummaryRow], *, first: int, past: int) -> bool:
    """Return whether each begins where the one before ends, from `first` to before `past`."""
    return [row.first for row in rows] + [past] == [first] + [row.past for row in rows]
