"""Replayed rows into events, by the words of the runtime that was recorded. Pure."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from proctor.event.model import Event, FrameNoted, Unrecognized, WarningRaised
from proctor.event.row import Direction, Row, StepTaken
from proctor.event.supervisor_events import decode_supervisor_row, supervisor_event
from proctor.ids import RuntimeId

REPLAY_OF = "replay of"  # the detail names the runtime that was recorded
REPLAYED = "replayed"  # the detail is what the supervisor saw then
NOT_REPLAYED = "not replayed"  # the detail says what had no place, or did not come


class Reader(Protocol):
    """A normalizer, as far as one of them needs another."""

    def feed(self, row: Row) -> Iterable[Event]: ...


class ReplayNormalizer:
    """The first row of a replay says whose words follow, so that the record alone is enough to read it."""

    def __init__(self, reader_of: Callable[[RuntimeId], Reader]) -> None:
        self._reader_of = reader_of
        self._original: Reader | None = None

    def feed(self, row: Row) -> Iterator[Event]:
        if row.dir is Direction.SELF:
            yield from self._from_supervisor(row)
        elif self._original is None:
            yield Unrecognized(native="before it is known what is replayed", frame=row.seq, at_ms=row.at_ms)
        else:
            yield from self._original.feed(row)

    def _from_supervisor(self, row: Row) -> Iterator[Event]:
        match decode_supervisor_row(row):
            case StepTaken(step=step, detail={"runtimeId": str(runtime_id)}) if step == REPLAY_OF:
                self._original = self._original or self._reader_of(RuntimeId(runtime_id))
                yield FrameNoted(native=step, frame=row.seq, at_ms=row.at_ms)
            case StepTaken(step=step, detail=detail) if step == REPLAYED and self._original is not None:
                yield from self._original.feed(
                    msgspec.structs.replace(row, frame=msgspec.Raw(msgspec.json.encode(detail)))
                )
            case StepTaken(step=step, detail={"what": str(what)}) if step == NOT_REPLAYED:
                yield WarningRaised(
                    source="protocol", text=f"{step}: {what}", channel="self", frame=row.seq, at_ms=row.at_ms
                )
            case _:
                yield supervisor_event(row)
