"""What a scripted model was asked and what it gave, request by request, in bounded memory."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import msgspec

from proctor.ids import Digest
from proctor.model.player import Kind
from proctor.model.wire import Item

_MAX_ROWS: Final = 500
_MAX_TEXTS: Final = 6
_MAX_TEXT_CHARS: Final = 1000


class JournalRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One request. `heard` is how the conversation it carried ended, cut to size."""

    at_ms: int
    method: str
    path: str
    kind: Kind
    status: int | None = None
    step: int | None = None
    try_number: int = 0
    digest: Digest | None = None
    model: str = ""
    tools: tuple[str, ...] = ()
    heard: tuple[str, ...] = ()
    has_output_schema: bool = False
    error: str | None = None
    is_complete: bool = False
    client_aborted: bool = False


Rows = tuple[JournalRow, ...]


class Journal:
    """The latest rows of one player; those who wait for something to show in them are told of every change."""

    def __init__(self) -> None:
        self._rows: dict[int, JournalRow] = {}
        self._next = 0
        self._changed = anyio.Event()

    @property
    def rows(self) -> Rows:
        return tuple(self._rows.values())

    def add(self, row: JournalRow) -> int:
        number = self._next
        self._next += 1
        self._rows.pop(number - _MAX_ROWS, None)
        self._put(number, row)
        return number

    def amend(self, number: int, **fields: Any) -> None:
        if (row := self._rows.get(number)) is not None:
            self._put(number, msgspec.structs.replace(row, **fields))

    async def until(self, holds: Callable[[Rows], bool]) -> Rows:
        while not holds(self.rows):
            await self._changed.wait()
        return self.rows

    def _put(self, number: int, row: JournalRow) -> None:
        self._rows[number] = row
        self._changed.set()
        self._changed = anyio.Event()


def heard(items: Sequence[Item]) -> tuple[str, ...]:
    """The last texts of a conversation, each cut to size."""
    return tuple(item.text[:_MAX_TEXT_CHARS] for item in items[-_MAX_TEXTS:] if item.text)
