"""The history of a session, as a context engine sees it: entries before the prompt, oldest first."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol, overload

from proctor.event.message import Message, ResultPart
from proctor.ids import EntryId


class History(Protocol):
    """Entries of a session in the order of the record. It may be long: read slices, not all of it.

    A replacement that an engine stored with `EngineContext.rewrite` takes the place of its entry.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Message]: ...

    def __reversed__(self) -> Iterator[Message]:
        """Iterate from the newest entry. Reads as far as the caller goes."""

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...

    def position(self, id_: EntryId) -> int | None:
        """Return the position of the entry with this id. None if the history has no such entry."""

    def result_of(self, call: EntryId) -> EntryId | None:
        """Return the id of the result of a tool call. None if the history has none."""


class ListedHistory(Sequence[Message]):
    """A history in memory."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._messages = tuple(messages)

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | Sequence[Message]:
        return self._messages[at]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __reversed__(self) -> Iterator[Message]:
        return reversed(self._messages)

    def position(self, id_: EntryId) -> int | None:
        return self._positions.get(id_)

    def result_of(self, call: EntryId) -> EntryId | None:
        return self._results.get(call)

    @cached_property
    def _positions(self) -> Mapping[EntryId, int]:
        return {message.id: at for at, message in enumerate(self._messages)}

    @cached_property
    def _results(self) -> Mapping[EntryId, EntryId]:
        return {message.part.call: message.id for message in self._messages if isinstance(message.part, ResultPart)}
