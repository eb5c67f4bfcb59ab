"""Convert replayed rows to events, with the normalizer of the recorded runtime. Pure."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from proctor.event.model import Event, FrameNoted, Unrecognized, WarningRaised
from proctor.event.row import Direction, Row, StepTaken
from proctor.event.supervisor_events import decode_supervisor_row, supervisor_event
from proctor.ids import RuntimeId

REPLAY_OF = "replay of"  # the detail names the recorded runtime
REPLAYED = "replayed"  # the detail is a recorded supervisor row
NOT_REPLAYED = "not replayed"  # the detail says which part of the recording or of the replay was left over


class Reader(Protocol):
    """The part of a normalizer that the replay needs."""

    def feed(self, row: Row) -> Iterable[Event]: ...


class ReplayNormalizer:
    """Normalizes a replay. Its first row names the recorded runtime, so that the record can be read by itself."""

    def __init__(self, reader_of: Callable[[RuntimeId], Reader]) -> None:
        self._reader_of = reader_of
        self._original: Reader | None = None

    @property
    def sees_tool_calls(self) -> bool:
        """Whether the recorded runtime shows tool calls."""
        return bool(getattr(self._original, "sees_tool_calls", True))

    def feed(self, row: Row) -> Iterator[Event]:
        if row.dir is Direction.SELF:
            yield from self._from_supervisor(row)
        elif self._original is None:
            yield Unrecognized(native="row before the start of the replay", frame=row.seq, at_ms=row.at_ms)
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
