"""lossless.db: the entries of a session, compressed by segment, their index of words, and the summaries of them."""

import hashlib
import logging
import os
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.context.engine import CommitResult
from proctor.context.engines.lossless.entry_text import searched_text, valid_text
from proctor.context.engines.lossless.packed_messages import encode_messages, pack, pack_ids, unpack, unpack_ids
from proctor.context.engines.lossless.segments import Segment
from proctor.context.engines.lossless.stored_damage import find_damage
from proctor.context.engines.lossless.stored_summary import StoredSegment, Summary
from proctor.context.word_query import fts_query
from proctor.errors import EngineError, MachineError, disk_error
from proctor.event.message import Message
from proctor.evidence.database import REFUSALS, Database, transaction
from proctor.ids import EntryId, SessionKey

FILE_NAME: Final = "lossless.db"
DAMAGED_NAME: Final = "lossless.db.damaged"
"""A damaged file that was set aside. The next one replaces it."""

DATABASE: Final = Database(
    application=0x5052434C,  # "PRCL"
    version=1,
    # Positions are those of the history. The index of words has one row per segment and no positions of words, which
    # makes it a third of the size. `span` finds the segment of an entry: the lowest and highest frames of each record.
    schema="""
create table segment (n integer primary key, position integer not null, entries integer not null,
                      bytes integer not null, is_start integer not null, dictionary integer not null,
                      messages blob not null) strict;
create table dictionary (n integer primary key, data blob not null) strict;
create index segment_position on segment (position);
create table record (n integer primary key, name text not null unique) strict;
create table span (record integer not null, first integer not null, segment integer not null, last integer not null,
                   primary key (record, first, segment)) strict, without rowid;
create virtual table words using fts5 (text, content = '', detail = none, columnsize = 0);
create table receipt (key text primary key, payload blob not null) strict, without rowid;
create table summary (n integer primary key, id text not null unique, level integer not null, first integer not null,
                      past integer not null, text text not null, at_ms integer not null, is_tainted integer not null,
                      is_by_model integer not null, sources blob, parent text) strict;
create index summary_parent on summary (parent, first);
create table change (one integer primary key check (one = 1), generation integer not null) strict;
insert into change (one, generation) values (1, 0)
""",
    code="engine.damaged",
    newer_code="engine.newer",
    # A turn whose commit was acknowledged must survive a power cut.
    synchronous="full",
    # A segment is some kilobytes.
    page_bytes=16384,
)

_SEGMENT: Final = "select n, position, entries, bytes, is_start from segment"
_MESSAGES: Final = "select messages, data from segment left join dictionary on dictionary.n = dictionary"
_SUMMARY: Final = "select id, level, first, past, text, at_ms, is_tainted, is_by_model from summary"
_LOCK_S: Final = 5.0
_DICTIONARY_BYTES: Final = 32 * 1024
_MOST_SAMPLES: Final = 64
_MOST_SPANS: Final = 8
_NUMBER_BITS: Final = 20
_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")
_CHANGE: Final = "update change set generation = generation + 1"
_MOST_FRAME: Final = (1 << 42) - 1

log = logging.getLogger("proctor.context.lossless")


class LosslessStore:
    """The database of one session. Opened at the first use. Usable from any thread; every method is one transaction.

    Every method raises MachineError if the file cannot be used, with the code `engine.damaged` if it is damaged.
    """

    def __init__(self, folder: Path, *, session: SessionKey) -> None:
        self.is_incomplete = False
        """Whether a damaged file was set aside, and the history was not taken in again since."""
        self._path = folder / FILE_NAME
        self._session = session
        self._files = 0
        self._opened: tuple[ExitStack, sqlite3.Connection] | None = None
        self._is_closed = False
        self._lock = threading.RLock()

    def close(self) -> None:
        """Close the file for good. If a call does not return, the file stays open until the process ends."""
        self._is_closed = True
        if self._lock.acquire(timeout=_LOCK_S):
            try:
                self._close_file()
            finally:
                self._lock.release()

    def forget(self) -> None:
        """Delete the file. The next use creates another one."""
        with self._lock:
            self._close_file()
            self._files += 1
            self.is_incomplete = False
            for name in (FILE_NAME, DAMAGED_NAME):
                _remove_files(self._path.with_name(name))

    @property
    def generation(self) -> tuple[int, int]:
        """Which file it is, and how often what was known changed in it: by summaries, and by another order."""
        with self._reading() as connection:
            [generation] = connection.execute("select generation from change").fetchone()
            return self._files, generation

    # ── damage ──

    def find_damage(self) -> str | None:
        """Return what is damaged. None if there is no file, or nothing is.

        Reads all of it, and changes nothing. Raises MachineError if it cannot be read for another reason.
        """
        if not os.path.lexists(self._path):
            return None
        if not self._path.is_file():
            return "it is not a file"
        try:
            with DATABASE.read(self._path) as connection:
                connection.execute("begin")
                return find_damage(connection, schema=DATABASE.schema)
        except MachineError as error:
            if error.code != DATABASE.code:
                raise self._advise(error) from error.__cause__
            return error.what

    def set_aside(self, error: MachineError) -> bool:
        """Rename the file if this error of a call was because of damage. The next use creates another one.

        Returns False if the file is sound, is of a newer version, or cannot be checked.
        """
        if error.code != DATABASE.code:
            return False
        with self._lock:
            self._close_file()
            try:
                damage = _certain_damage(error) or self.find_damage()
            except MachineError:
                return False
            if damage is None:
                return False
            self._rename()
            self._files += 1
            self.is_incomplete = True
        log.warning(
            "%s was damaged, and is set aside as %s: %s",
            FILE_NAME,
            DAMAGED_NAME,
            damage,
            extra={"engineId": "lossless", "reason": damage},
        )
        return True

    def _rename(self) -> None:
        aside = self._path.with_name(DAMAGED_NAME)
        _remove_files(aside)
        try:
            for suffix in _SUFFIXES:
                file = _beside(self._path, suffix)
                if os.path.lexists(file):
                    file.rename(_beside(aside, suffix))
        except OSError as error:
            raise disk_error(error, path=aside) from error

    def _close_file(self) -> None:
        if self._opened is not None:
            (stack, _), self._opened = self._opened, None
            # A damaged file cannot always be closed without an error, and it is closed all the same.
            with self._refusing():
                stack.close()

    # ── entries ──

    def count(self) -> int:
        """Return how many entries are known."""
        with self._reading() as connection:
            return _count(connection)

    def last_entry(self) -> EntryId | None:
        """Return the id of the last entry."""
        with self._reading() as connection:
            row = connection.execute(f"{_MESSAGES} order by position desc limit 1").fetchone()
            return None if row is None else unpack(*row)[-1].id

    def segments(self, *, first: int = 0, past: int | None = None) -> tuple[StoredSegment, ...]:
        """Return the segments that begin in this range of positions, oldest first."""
        with self._reading() as connection:
            rows = connection.execute(
                f"{_SEGMENT} where position >= ? and position < ? order by position",
                (first, 2**62 if past is None else past),
            )
            return tuple(map(_segment, rows))

    def segment_bytes(self, *, first: int) -> int:
        """Return the size of the entries from the position `first`."""
        with self._reading() as connection:
            query = "select coalesce(sum(bytes), 0) from segment where position >= ?"
            return int(connection.execute(query, (first,)).fetchone()[0])

    def messages(self, segment: int) -> tuple[Message, ...]:
        """Return the entries of a segment."""
        with self._reading() as connection:
            return _read(connection, segment)

    def entries(self, *, first: int, past: int, most: int) -> tuple[Message, ...]:
        """Return the entries from the position `first` to before `past`, at most so many."""
        with self._reading() as connection:
            rows = connection.execute(
                "select position, messages, data from segment left join dictionary on dictionary.n = dictionary"
                " where position < ? and position >= (select max(position) from segment where position <= ?)"
                " order by position",
                (past, first),
            )
            found: list[Message] = []
            for position, *packed in rows:
                found += unpack(*packed)[max(0, first - position) : past - position]
                if len(found) >= most:
                    break
            return tuple(found[:most])

    def find(self, id_: EntryId) -> tuple[Message, ...] | None:
        """Return the entries of the segment with this entry. None if it is unknown."""
        with self._reading() as connection:
            return _find(connection, id_)

    def without_known(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages that are not known as entries."""
        with self._reading() as connection:
            return tuple(each for each in messages if _find(connection, each.id) is None)

    def append(self, segments: Iterable[Segment], *, after: int | None = None) -> bool:
        """Add entries after all others. Returns False if `after` is given and another number of entries is known."""
        with self._writing() as connection:
            if after is not None and after != _count(connection):
                return False
            _append(connection, segments)
            return True

    def commit(
        self, key: EntryId, messages: Sequence[Message], *, split: Callable[[Sequence[Message]], Iterator[Segment]]
    ) -> CommitResult:
        """Add the entries of a turn that are not known yet, once.

        Raises EngineError if the key was committed with other messages.
        """
        payload = hashlib.sha256(encode_messages(messages)).digest()
        with self._writing() as connection:
            row = connection.execute("select payload from receipt where key = ?", (key,)).fetchone()
            if row is not None and row[0] != payload:
                raise EngineError("engine.failed", f"the turn {key} was committed before with other messages")
            if row is not None:
                return "duplicate"
            connection.execute("insert into receipt (key, payload) values (?, ?)", (key, payload))
            _append(connection, split([each for each in messages if _find(connection, each.id) is None]))
        return "committed"

    def reorder(self, positions: Sequence[tuple[int, int]], *, unchanged: int) -> None:
        """Set the positions of segments, by number, and remove the summaries of entries that are not before
        `unchanged`."""
        with self._writing() as connection:
            connection.executemany("update segment set position = ? where n = ?", ((at, n) for n, at in positions))
            connection.execute("delete from summary where past > ?", (unchanged,))
            connection.execute("update summary set parent = null where parent not in (select id from summary)")
            connection.execute(_CHANGE)

    # ── summaries ──

    def summaries(self) -> tuple[Summary, ...]:
        """Return the summaries that no other covers, oldest first, without their sources."""
        with self._reading() as connection:
            rows = connection.execute(f"{_SUMMARY} where parent is null order by first")
            return tuple(map(_summary, rows))

    def sources(self, *, first: int, past: int) -> tuple[EntryId, ...]:
        """Return the ids of the entries in this range, which leaves cover."""
        with self._reading() as connection:
            rows = connection.execute(
                "select sources from summary where level = 1 and first >= ? and past <= ? order by first", (first, past)
            )
            return tuple(id_ for (row,) in rows for id_ in unpack_ids(row))

    def summary(self, id_: str) -> tuple[Summary, tuple[Summary, ...]] | None:
        """Return a summary and those that it covers. None if there is no such summary."""
        with self._reading() as connection:
            row = connection.execute(f"{_SUMMARY} where id = ?", (id_,)).fetchone()
            if row is None:
                return None
            children = connection.execute(f"{_SUMMARY} where parent = ? order by first", (id_,))
            return _summary(row), tuple(map(_summary, children))

    def add_summaries(self, summaries: Sequence[Summary], *, generation: tuple[int, int]) -> bool:
        """Add summaries, those that others cover first. Returns False if what they were made from is not known now."""
        with self._writing() as connection:
            if generation != self.generation:
                return False
            for each in summaries:
                row = (each.id, each.level, each.first, each.past, each.text, each.at_ms, each.is_tainted)
                sources = pack_ids(each.sources) if each.level == 1 else None
                connection.execute(
                    "insert into summary (id, level, first, past, text, at_ms, is_tainted, is_by_model, sources)"
                    " values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (*row, each.is_by_model, sources),
                )
                connection.executemany(
                    "update summary set parent = ? where id = ?", ((each.id, child) for child in each.children)
                )
            connection.execute(_CHANGE)
            return True

    # ── search ──

    def search(self, query: str, *, most: int) -> tuple[tuple[Message, ...], ...]:
        """Return the entries of the segments that have every word of the query, the newest segment first."""
        words = fts_query(query)
        if not words:
            return ()
        with self._reading() as connection:
            rows = connection.execute(
                "select rowid from words where words match ? order by rowid desc limit ?", (words, most)
            ).fetchall()
            return tuple(_read(connection, segment) for (segment,) in rows)

    # ── the file ──

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._refusing():
            yield self._connect()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._refusing():
            connection = self._connect()
            with transaction(connection):
                yield connection

    def _connect(self) -> sqlite3.Connection:
        if self._is_closed:
            raise EngineError("engine.failed", "the engine is closed")
        if self._opened is None:
            try:
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            except OSError as error:
                raise disk_error(error, path=self._path) from error
            with ExitStack() as stack:
                connection = stack.enter_context(DATABASE.open(self._path))
                connection.execute("pragma secure_delete = on")
                self._opened = stack.pop_all(), connection
        return self._opened[1]

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except MachineError as error:
            raise self._advise(error) from error.__cause__
        except REFUSALS as error:
            raise self._advise(DATABASE.refusal(error, self._path)) from error
        except (msgspec.DecodeError, zlib.error, ValueError, TypeError) as error:
            what = f"a row cannot be read: {error}"
            raise self._advise(MachineError(DATABASE.code, what, file=str(self._path))) from error

    def _advise(self, error: MachineError) -> MachineError:
        """Return the error with the command that helps, if there is one."""
        if error.code not in (DATABASE.code, DATABASE.newer_code) or error.suggestion is not None:
            return error
        command = f"proctor session verify {self._session} --rebuild"
        what = f"{error.what}; `{command}` sets it aside, and the next turn makes it again"
        return MachineError(error.code, what, file=error.file, suggestion=f"Run `{command}`.")


def _certain_damage(error: MachineError) -> str | None:
    """Return what SQLite says is damaged. None if the error may have another cause, such as a wrong statement."""
    name = getattr(error.__cause__, "sqlite_errorname", "")
    return str(error.__cause__) if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) else None


def _remove_files(path: Path) -> None:
    for suffix in _SUFFIXES:
        try:
            _beside(path, suffix).unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, path=path) from error


def _beside(path: Path, suffix: str) -> Path:
    """Return one of the files that SQLite keeps for a database."""
    return path.with_name(path.name + suffix)


def _count(connection: sqlite3.Connection) -> int:
    row = connection.execute("select position + entries from segment order by position desc limit 1").fetchone()
    return 0 if row is None else int(row[0])


def _append(connection: sqlite3.Connection, segments: Iterable[Segment]) -> None:
    position = _count(connection)
    dictionary = _dictionary(connection)
    for each in segments:
        dictionary = dictionary or _make_dictionary(connection)
        number, data = dictionary or (0, None)
        packed = pack(encode_messages(each.messages), data)
        row = (position, len(each.messages), each.size_bytes, each.is_start, number, packed)
        n = connection.execute(
            "insert into segment (position, entries, bytes, is_start, dictionary, messages) values (?, ?, ?, ?, ?, ?)",
            row,
        ).lastrowid
        words = "\n".join(map(searched_text, each.messages))
        connection.execute("insert into words (rowid, text) values (?, ?)", (n, valid_text(words)))
        for name, (first, last) in _spans(each.messages).items():
            connection.execute("insert or ignore into record (name) values (?)", (name,))
            connection.execute(
                "insert into span (record, first, segment, last) select n, ?, ?, ? from record where name = ?",
                (first, n, last, name),
            )
        position += len(each.messages)


def _find(connection: sqlite3.Connection, id_: EntryId) -> tuple[Message, ...] | None:
    name, frame = _place(id_)
    # Segments follow each other in their record, so only the nearest can have the entry.
    rows = connection.execute(
        "select span.last, segment from span where record = (select n from record where name = ?) and span.first <= ?"
        " order by span.first desc limit ?",
        (name, frame, _MOST_SPANS),
    ).fetchall()
    for last, segment in rows:
        if last >= frame:
            found = _read(connection, segment)
            if any(message.id == id_ for message in found):
                return found
    return None


def _spans(messages: Sequence[Message]) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest frame of the messages in each record."""
    spans: dict[str, tuple[int, int]] = {}
    for message in messages:
        name, frame = _place(message.id)
        first, last = spans.get(name, (frame, frame))
        spans[name] = min(first, frame), max(last, frame)
    return spans


def _place(id_: EntryId) -> tuple[str, int]:
    """Return the record of an entry and its place there, from `<record>#<frame>` or `<record>#<frame>.<k>`.

    >>> _place(EntryId("r/a#3")), _place(EntryId("other"))
    (('r/a', 3145728), ('other', 0))
    """
    name, _, place = id_.rpartition("#") if "#" in id_ else (id_, "", "")
    frame, _, number = place.partition(".")
    return valid_text(name), (_number(frame, _MOST_FRAME) << _NUMBER_BITS) + _number(number, (1 << _NUMBER_BITS) - 1)


def _number(text: str, most: int) -> int:
    return min(most, int(text)) if text.isdecimal() and len(text) <= len(str(most)) else most if text else 0


def _read(connection: sqlite3.Connection, segment: int) -> tuple[Message, ...]:
    row = connection.execute(f"{_MESSAGES} where segment.n = ?", (segment,)).fetchone()
    if row is None:
        raise EngineError("engine.failed", "the entries were forgotten meanwhile")
    return unpack(*row)


def _dictionary(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
    row: tuple[int, bytes] | None = connection.execute("select n, data from dictionary").fetchone()
    return row


def _make_dictionary(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
    """Make the dictionary from the beginning of the session, once that is long enough, and return it.

    With a dictionary, a segment is compressed by what sessions repeat: a third is saved.
    """
    [size] = connection.execute("select sum(bytes) from segment").fetchone()
    if (size or 0) < _DICTIONARY_BYTES:
        return None
    rows = connection.execute("select n from segment order by n desc limit ?", (_MOST_SAMPLES,)).fetchall()
    data = b"".join(encode_messages(_read(connection, n)) for (n,) in reversed(rows))[-_DICTIONARY_BYTES:]
    connection.execute("insert into dictionary (n, data) values (1, ?)", (data,))
    return 1, data


def _segment(row: Any) -> StoredSegment:
    n, position, entries, size_bytes, is_start = row
    return StoredSegment(n=n, position=position, entries=entries, size_bytes=size_bytes, is_start=bool(is_start))


def _summary(row: Any) -> Summary:
    id_, level, first, past, text, at_ms, is_tainted, is_by_model = row
    return Summary(
        id=EntryId(id_),
        level=level,
        first=first,
        past=past,
        text=text,
        at_ms=at_ms,
        is_tainted=bool(is_tainted),
        is_by_model=bool(is_by_model),
    )
