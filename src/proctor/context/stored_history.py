"""The history of a session, read from its store as far as an engine goes."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, overload

from proctor import decoding
from proctor.context.history import History
from proctor.context.store import DATABASE, refusing_damage
from proctor.event.message import Message, ResultPart
from proctor.ids import EntryId

_BATCH: Final = 256

_message = decoding.json_decoder(Message)


@contextmanager
def open_history(store: Path, *, after_turn: int) -> Iterator[History]:
    """Open the entries of the turns after `after_turn`, as far as they are stored now. Usable from any thread.

    Raises as `refusing_damage`, also while it is read.
    """
    with refusing_damage(store), DATABASE.read(store) as connection:
        yield _StoredHistory(connection, after_turn=after_turn)


class _StoredHistory(Sequence[Message]):
    """Entries by position: they are stored under consecutive numbers."""

    def __init__(self, connection: sqlite3.Connection, *, after_turn: int) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        # Both are a step in an index, however many entries there are; min() and max() would read them all.
        first = connection.execute(
            "select n from entry where turn > ? order by turn, n limit 1", (after_turn,)
        ).fetchone()
        last = connection.execute("select n from entry order by n desc limit 1").fetchone()
        self._first: int = 0 if first is None else first[0]
        self._count: int = 0 if first is None else last[0] - first[0] + 1

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | Sequence[Message]:
        if isinstance(at, slice):
            start, stop, step = at.indices(self._count)
            if step == 1:
                return tuple(self._read(start, stop))
            return tuple(self[each] for each in range(start, stop, step))
        position = at + self._count if at < 0 else at
        if not 0 <= position < self._count:
            raise IndexError(at)
        [message] = self._read(position, position + 1)
        return message

    def __iter__(self) -> Iterator[Message]:
        for at in range(0, self._count, _BATCH):
            yield from self._read(at, min(at + _BATCH, self._count))

    def __reversed__(self) -> Iterator[Message]:
        for end in range(self._count, 0, -_BATCH):
            yield from reversed(self._read(max(0, end - _BATCH), end))

    def position(self, id_: EntryId) -> int | None:
        with self._lock:
            row = self._connection.execute("select n from entry where id = ?", (id_,)).fetchone()
        if row is None or not self._first <= row[0] < self._first + self._count:
            return None
        return int(row[0]) - self._first

    def result_of(self, call: EntryId) -> EntryId | None:
        with self._lock:
            # A result is an entry of the turn of its call.
            rows = self._connection.execute(
                "select message from entry where turn = (select turn from entry where id = ?) and n >= ? order by n",
                (call, self._first),
            ).fetchall()
        for (row,) in rows:
            message = _message(row)
            if isinstance(message.part, ResultPart) and message.part.call == call:
                return message.id
        return None

    def _read(self, start: int, stop: int) -> list[Message]:
        with self._lock:
            rows = self._connection.execute(
                "select coalesce(replacement.message, entry.message) from entry"
                " left join replacement on replacement.id = entry.id where n >= ? and n < ? order by n",
                (self._first + start, self._first + stop),
            ).fetchall()
        return [_message(row) for (row,) in rows]
