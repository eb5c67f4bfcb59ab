"""The journal of a scripted model: one row per request, in bounded memory."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import msgspec

from proctor.ids import Digest
from proctor.model.player import RequestKind
from proctor.model.wire import Item

_MAX_ROWS: Final = 500
_MAX_TEXTS: Final = 6
_MAX_TEXT_CHARS: Final = 1000


class JournalRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One request to a scripted model, and its answer."""

    at_ms: int
    """Wall-clock time of the request, in milliseconds since the epoch."""
    method: str
    """The HTTP method."""
    path: str
    """The path of the URL after the token."""
    kind: RequestKind
    """How the request relates to the script."""
    status: int | None = None
    """The HTTP status of the answer; null if there is no answer (`fault: hang`)."""
    step: int | None = None
    """The index of the step that answered, counted from 0; null if no step was used."""
    try_number: int = 0
    """How often this step was requested before."""
    digest: Digest | None = None
    """The digest of the conversation that the request contains; null for requests without one."""
    model: str = ""
    """The model that the request names; empty if it names none."""
    tools: tuple[str, ...] = ()
    """The names of the tools that the request offers."""
    heard: tuple[str, ...] = ()
    """The last texts of the conversation: of the last 6 items, at most 1000 characters each."""
    has_output_schema: bool = False
    """Whether the request demands an answer of a given JSON schema."""
    error: str | None = None
    """The error message that was sent; null if none was."""
    is_complete: bool = False
    """Whether the whole answer was delivered."""
    client_aborted: bool = False
    """Whether the client disconnected before the answer was complete."""


Rows = tuple[JournalRow, ...]


class Journal:
    """The latest 500 rows of one script. Waiting callers are notified of every change."""

    def __init__(self) -> None:
        self._rows: dict[int, JournalRow] = {}
        self._next = 0
        self._changed = anyio.Event()

    @property
    def rows(self) -> Rows:
        return tuple(self._rows.values())

    def add(self, row: JournalRow) -> int:
        """Append a row, drop the oldest above the limit, and return the new row's number."""
        number = self._next
        self._next += 1
        self._rows.pop(number - _MAX_ROWS, None)
        self._put(number, row)
        return number

    def amend(self, number: int, **fields: Any) -> None:
        """Change fields of a row. Does nothing if the row was dropped."""
        if (row := self._rows.get(number)) is not None:
            self._put(number, msgspec.structs.replace(row, **fields))

    async def until(self, condition: Callable[[Rows], bool]) -> Rows:
        """Wait until the rows meet a condition and return them. The caller sets the deadline."""
        while not condition(self.rows):
            await self._changed.wait()
        return self.rows

    def _put(self, number: int, row: JournalRow) -> None:
        self._rows[number] = row
        self._changed.set()
        self._changed = anyio.Event()


def last_texts(items: Sequence[Item]) -> tuple[str, ...]:
    """Return the texts of the last items of a conversation, each shortened."""
    return tuple(item.text[:_MAX_TEXT_CHARS] for item in items[-_MAX_TEXTS:] if item.text)
