"""A process that speaks lines: on record before it is acted on, and gone with the block."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from proctor.errors import HangupError
from proctor.event.model import Event, FrameNoted, ProcessExited, StreamEnded, Unrecognized, WarningRaised
from proctor.event.row import Direction, Row
from proctor.event.supervisor_events import supervisor_event
from proctor.runtime.base import HostRequest
from proctor.runtime.line_process import MAX_BATCH_LINES, PLAIN, LineCount, LineProcess, LineRoute, open_line_process
from proctor.testing.agent_under_test import EventTap, host_asked
from tests.lab import processes_with


class Words:
    """Each line is an event that says it."""

    def feed(self, row: Row) -> list[Event]:
        if row.dir is Direction.SELF:
            return [supervisor_event(row)]
        said = row.text or bytes(row.frame).decode()  # type: ignore[arg-type]
        if row.dir is Direction.ERR:
            return [WarningRaised(source="process", text=said, channel="stderr", frame=row.seq, at_ms=row.at_ms)]
        kind = FrameNoted if row.dir is Direction.OUT else Unrecognized
        return [kind(native=said, frame=row.seq, at_ms=row.at_ms)]


@dataclass
class Ear:
    tap: EventTap
    lines: list[bytes] = field(default_factory=list)
    on_record: list[bool] = field(default_factory=list)
    cause: str | None = None
    spoke: anyio.Event = field(default_factory=anyio.Event)

    def route(self, line: bytes) -> LineRoute:
        return PLAIN

    def on_line(self, line: bytes) -> None:
        self.lines.append(line)
        self.spoke.set()
        if len(self.lines) < 10:  # looking is slow
            self.on_record.append(line.decode() in {event.native for event in self.tap.of(Unrecognized)})

    def on_hangup(self, cause: str) -> None:
        self.cause = cause


@asynccontextmanager
async def talking(
    folder: Path, line: str, *, is_turns_own: bool = False
) -> AsyncIterator[tuple[LineProcess, Ear, LineCount]]:
    tap = EventTap(Words())
    ear, count = Ear(tap), LineCount()
    async with (
        host_asked(folder, name="p-talk", program=None) as ask,
        open_line_process(
            ["bash", "-c", line],
            request=ask,
            listener=ear,
            tap=tap,
            count=count,
            env={"MARK": folder.name},
            cwd=folder,
            is_turns_own=is_turns_own,
        ) as talk,
    ):
        assert isinstance(ask, HostRequest)
        yield talk, ear, count


def natives(ear: Ear) -> list[str]:
    return [event.native for event in ear.tap.events if isinstance(event, FrameNoted | Unrecognized)]


def test_lines_are_recorded_before_they_are_acted_on_and_counted(tmp_path: Path) -> None:
    async def main() -> tuple[Ear, int]:
        with anyio.fail_after(30):
            async with talking(tmp_path, "read -r x; echo got $x; echo oops >&2; printf torn") as (talk, ear, count):
                await talk.send(b"hello")
                await talk.closed.wait()
                return ear, count.lines

    ear, lines = anyio.run(main)
    assert (ear.lines, ear.on_record, lines) == ([b"got hello", b"torn"], [True, True], 2)
    assert natives(ear) == ["hello", "got hello", "torn"]
    assert [event.text for event in ear.tap.of(WarningRaised)] == ["oops"]
    assert len(ear.tap.of(StreamEnded)) == 1
    assert [(event.code, event.is_turns_own) for event in ear.tap.of(ProcessExited)] == [(0, False)]


def test_the_end_of_a_turns_own_process_is_not_the_end_of_the_session(tmp_path: Path) -> None:
    async def main() -> Ear:
        with anyio.fail_after(30):
            async with talking(tmp_path, "exit 3", is_turns_own=True) as (talk, ear, _):
                await talk.closed.wait()
                with pytest.raises(HangupError):
                    await talk.send(b"too late")
                return ear

    ear = anyio.run(main)
    assert [(event.code, event.is_turns_own) for event in ear.tap.of(ProcessExited)] == [(3, True)]
    assert (ear.tap.of(StreamEnded), ear.cause is None, natives(ear)) == ([], False, [])


@pytest.mark.long
def test_leaving_ends_the_whole_tree_and_puts_that_on_record(tmp_path: Path) -> None:
    name = f"4711.{abs(hash(tmp_path)) % 10000}"

    async def main() -> Ear:
        with anyio.fail_after(30):
            line = f"trap '' TERM; setsid sleep {name} & echo up; wait"
            async with talking(tmp_path, line) as (talk, ear, _):
                await ear.spoke.wait()
                assert talk.hangup is None
            return ear

    ear = anyio.run(main)
    assert ear.cause is not None
    assert len(ear.tap.of(ProcessExited)) == 1
    assert processes_with(name) == []


@pytest.mark.long
def test_a_caller_that_is_cancelled_leaves_nothing_running(tmp_path: Path) -> None:
    name = f"4712.{abs(hash(tmp_path)) % 10000}"

    async def main() -> Ear:
        ears: list[Ear] = []
        with anyio.move_on_after(2) as patience:
            async with talking(tmp_path, f"echo up; sleep {name}") as (_, ear, _):
                ears.append(ear)
                await ear.spoke.wait()
                patience.cancel()
                await anyio.sleep_forever()
        return ears[0]

    ear = anyio.run(main)
    assert len(ear.tap.of(ProcessExited)) == 1
    assert processes_with(name) == []


def test_a_flood_of_short_lines_leaves_others_their_turn(tmp_path: Path) -> None:
    async def main() -> list[int]:
        seen = [0]
        with anyio.fail_after(60):
            async with talking(tmp_path, "yes | head -n 60000; echo over") as (talk, ear, _):
                while not talk.closed.is_set():
                    await anyio.lowlevel.checkpoint()
                    seen.append(len(ear.lines))
            assert ear.lines[-1] == b"over"
        return seen

    seen = anyio.run(main)
    assert seen[-1] == 60001
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 2 * MAX_BATCH_LINES
