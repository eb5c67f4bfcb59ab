"""Events by offset: whoever reads, from wherever and however slowly, sees all that is kept, in order, once."""

from collections.abc import Iterator

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.attempt import stream
from proctor.attempt.stream import EventStream, OffsetEvent
from proctor.errors import EvidenceError, InputError
from proctor.event.model import Event, FrameNoted

WINDOW = 4


def note(number: int) -> Event:
    return FrameNoted(native=str(number), frame=number, at_ms=0)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "WINDOW", WINDOW)
    monkeypatch.setattr(stream, "_BATCH", 3)


async def read(events: EventStream, *, after: int) -> list[OffsetEvent]:
    return [placed async for placed in events.after(after)]


@pytest.mark.requirement("surface.embed")
@given(keeps_all=st.booleans(), steps=st.lists(st.integers(0, 12), max_size=8), place=st.integers(0, 60))
def test_a_reader_at_any_place_sees_the_rest_once_and_in_order(keeps_all: bool, steps: list[int], place: int) -> None:
    """One that reads a little after every burst of events, as slow as may be, from memory and from the record."""
    record: list[Event] = []
    seen: list[OffsetEvent] = []

    async def test() -> None:
        events = EventStream(keeps_all=keeps_all, replay=lambda: iter(record))
        reader = None
        for burst in steps:
            for _ in range(burst):
                record.append(note(len(record) + 1))
                events.publish(record[-1])
            if reader is None and events.offset >= place:
                reader = events.after(place)
            if reader is not None and place + len(seen) < events.offset:
                seen.append(await anext(reader))
        events.close()
        if reader is not None:
            seen.extend([placed async for placed in reader])
            assert seen == [OffsetEvent(number, note(number)) for number in range(place + 1, len(record) + 1)]

    anyio.run(test)


def test_what_was_not_kept_is_refused_at_once_and_to_a_reader_that_fell_behind() -> None:
    async def test() -> None:
        events = EventStream(keeps_all=False)
        slow = events.after(0)
        for number in range(1, 2 * WINDOW + 1):
            events.publish(note(number))
        assert [offset for offset, _ in await read_closed(events, after=WINDOW)] == [5, 6, 7, 8]
        with pytest.raises(InputError, match="the oldest stored event has the offset 5") as gone:
            await anext(slow)
        assert gone.value.code == "session.offset"
        with pytest.raises(InputError, match="event 4 is no longer stored"):
            events.after(WINDOW - 1)
        with pytest.raises(InputError, match="the last one is 8"):
            events.after(9)

    async def read_closed(events: EventStream, *, after: int) -> list[OffsetEvent]:
        events.close()
        return await read(events, after=after)

    anyio.run(test)


def test_a_record_that_ends_too_early_is_no_record() -> None:
    def cut() -> Iterator[Event]:
        yield note(1)

    async def test() -> None:
        events = EventStream(keeps_all=False, replay=cut)
        for number in range(1, 2 * WINDOW + 1):
            events.publish(note(number))
        with pytest.raises(EvidenceError, match="fewer events than were published"):
            await read(events, after=0)

    anyio.run(test)


def test_who_waits_hears_of_news_and_of_the_end() -> None:
    async def test() -> None:
        events = EventStream(keeps_all=True)
        seen: list[OffsetEvent] = []

        async def follow() -> None:
            seen.extend(await read(events, after=0))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await anyio.wait_all_tasks_blocked()
                events.publish(note(1))
                await anyio.wait_all_tasks_blocked()
                events.close()
        assert seen == [OffsetEvent(1, note(1))]

    anyio.run(test)
