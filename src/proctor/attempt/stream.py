"""The events of a session by offset. A reader has a place in them, not a queue, so a slow one holds nothing up."""

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread

from proctor.errors import EvidenceError, InputError
from proctor.event.model import Event
from proctor.event.row import Row
from proctor.evidence.layout import FRAMES
from proctor.evidence.reader import read_rows
from proctor.runtime.base import Normalizer

WINDOW = 4096
_BATCH = 256


class Placed(NamedTuple):
    """An event and its offset, by which a reader that lost its connection goes on after it. The first is 1."""

    offset: int
    event: Event


class EventStream:
    """Written by one, read by many. Where not all is kept, `replay` reads from the first event on, if anything can."""

    def __init__(self, *, is_all_kept: bool, replay: Callable[[], Iterator[Event]] | None = None) -> None:
        self._window = None if is_all_kept else WINDOW
        self._replay = replay
        self._kept: list[Event] = []
        self._gone = 0
        self._end: int | None = None
        self._news: anyio.Event | None = None

    @property
    def offset(self) -> int:
        """Of the last event."""
        return self._gone + len(self._kept)

    def publish(self, event: Event) -> None:
        self._kept.append(event)
        # Cut by halves, so that an event costs the same however many are kept.
        if self._window is not None and len(self._kept) >= 2 * self._window:
            del self._kept[: self._window]
            self._gone += self._window
        self.wake()

    def close(self) -> None:
        """No event will follow."""
        self._end = self.offset
        self.wake()

    def wake(self) -> None:
        """Have those who wait look again."""
        if self._news is not None:
            self._news.set()
            self._news = None

    def after(self, offset: int, *, end: Callable[[], int | None] = lambda: None) -> AsyncIterator[Placed]:
        """What follows the offset, then what happens, up to `end` as soon as that is known, or to the last event.

        InputError, at once, for an offset that cannot be had.
        """
        if not 0 <= offset <= self.offset:
            raise InputError("session.offset", f"there is no event {offset} yet: the last one is {self.offset}")
        self._refuse_what_is_gone(offset)
        return self._read(offset, end)

    async def _read(self, offset: int, end: Callable[[], int | None]) -> AsyncIterator[Placed]:
        while True:
            self._refuse_what_is_gone(offset)
            if offset < self._gone:
                async for placed in self._from_record(offset):
                    offset = placed.offset
                    yield placed
            at = offset - self._gone
            batch = self._kept[at : at + _BATCH]
            limit = end() if self._end is None else self._end if (given := end()) is None else given
            for event in batch:
                if limit is not None and offset >= limit:
                    return
                offset += 1
                yield Placed(offset, event)
            if not batch:
                if limit is not None and offset >= limit:
                    return
                self._news = self._news or anyio.Event()
                await self._news.wait()

    def _refuse_what_is_gone(self, offset: int) -> None:
        if offset < self._gone and self._replay is None:
            what = f"event {offset + 1} is no longer kept; the oldest that is has the offset {self._gone + 1}"
            raise InputError("session.offset", what)

    async def _from_record(self, offset: int) -> AsyncIterator[Placed]:
        """Until what is kept in memory is reached; no further, because the last row may be being written."""
        assert self._replay is not None
        events = islice(self._replay(), offset, None)
        while offset < self._gone:
            wanted = min(_BATCH, self._gone - offset)
            batch = await anyio.to_thread.run_sync(_take, events, wanted)
            if len(batch) < wanted:
                raise EvidenceError("evidence.torn", "the record ends before what was recorded", file=FRAMES)
            for event in batch:
                offset += 1
                yield Placed(offset, event)


def _take(events: Iterator[Event], count: int) -> list[Event]:
    return list(islice(events, count))


def replayed(frames: Path, normalizer: Normalizer) -> Iterator[Event]:
    """The events of a record, as they were when it was written."""
    for row in read_rows(frames, Row):
        yield from normalizer.feed(row)
