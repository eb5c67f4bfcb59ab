"""The events of a session by offset. Readers have an offset, not a queue, so a slow reader blocks nothing."""

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
"""Minimum number of events that are stored in memory."""
_BATCH = 256


class OffsetEvent(NamedTuple):
    """An event and its offset."""

    offset: int
    """Number of the event in the session, counted from 1. A reader that reconnects continues after it."""
    event: Event


class EventStream:
    """The events of one session, with one writer and many readers.

    Unless `keeps_all` is set, only the last events are stored. Older ones are then read with `replay`, which yields all
    events from the first one on.
    """

    def __init__(self, *, keeps_all: bool, replay: Callable[[], Iterator[Event]] | None = None) -> None:
        self._window = None if keeps_all else WINDOW
        self._replay = replay
        self._stored: list[Event] = []
        self._dropped = 0
        self._end: int | None = None
        self._news: anyio.Event | None = None

    @property
    def offset(self) -> int:
        """Offset of the last event; 0 before the first."""
        return self._dropped + len(self._stored)

    def publish(self, event: Event) -> None:
        """Append an event and wake the readers."""
        self._stored.append(event)
        # Half of the events are dropped at once, so that the cost per event is constant.
        if self._window is not None and len(self._stored) >= 2 * self._window:
            del self._stored[: self._window]
            self._dropped += self._window
        self.wake()

    def close(self) -> None:
        """End the stream: no event will follow."""
        self._end = self.offset
        self.wake()

    def wake(self) -> None:
        """Make waiting readers check again."""
        if self._news is not None:
            self._news.set()
            self._news = None

    def after(self, offset: int, *, end: Callable[[], int | None] = lambda: None) -> AsyncIterator[OffsetEvent]:
        """Iterate over the events after an offset, then over new ones, until the stream ends.

        `end()` returns the offset after which to stop; None while that is not known. Raises InputError, before the
        first event, for an offset that does not exist yet or is no longer stored.
        """
        if not 0 <= offset <= self.offset:
            raise InputError("session.offset", f"there is no event {offset} yet: the last one is {self.offset}")
        self._refuse_dropped(offset)
        return self._read(offset, end)

    async def _read(self, offset: int, end: Callable[[], int | None]) -> AsyncIterator[OffsetEvent]:
        while True:
            self._refuse_dropped(offset)
            if offset < self._dropped:
                async for placed in self._from_record(offset):
                    offset = placed.offset
                    yield placed
            at = offset - self._dropped
            batch = self._stored[at : at + _BATCH]
            limit = self._end if (wanted_end := end()) is None else wanted_end
            for event in batch:
                if limit is not None and offset >= limit:
                    return
                offset += 1
                yield OffsetEvent(offset, event)
            if not batch:
                if limit is not None and offset >= limit:
                    return
                self._news = self._news or anyio.Event()
                await self._news.wait()

    def _refuse_dropped(self, offset: int) -> None:
        if offset < self._dropped and self._replay is None:
            what = f"event {offset + 1} is no longer stored; the oldest stored event has the offset {self._dropped + 1}"
            raise InputError("session.offset", what)

    async def _from_record(self, offset: int) -> AsyncIterator[OffsetEvent]:
        """Yield events from the record up to the first one in memory. The last rows may not be written completely."""
        assert self._replay is not None
        events = islice(self._replay(), offset, None)
        while offset < self._dropped:
            wanted = min(_BATCH, self._dropped - offset)
            batch = await anyio.to_thread.run_sync(_take, events, wanted)
            if len(batch) < wanted:
                raise EvidenceError(
                    "evidence.torn", "the record on disk has fewer events than were published", file=FRAMES
                )
            for event in batch:
                offset += 1
                yield OffsetEvent(offset, event)


def _take(events: Iterator[Event], count: int) -> list[Event]:
    return list(islice(events, count))


def replayed(frames: Path, normalizer: Normalizer) -> Iterator[Event]:
    """Yield the events of a record, by normalizing its frames again."""
    for row in read_rows(frames, Row):
        yield from normalizer.feed(row)
