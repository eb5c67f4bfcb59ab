"""The twin of a process: what it said comes again, when it did, in whatever pieces."""

from collections.abc import Iterator
from itertools import cycle

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import HangupError
from proctor.event.row import Direction
from proctor.transport.replay import EXITED, KILLED, RecordedLine, ReplayChannel
from tests.runtime.twin import run

LINES = st.lists(
    st.builds(
        RecordedLine, dir=st.sampled_from([Direction.IN, Direction.OUT, Direction.ERR]), data=st.binary(max_size=20)
    )
)


def said(dir_: Direction, data: bytes, *, at_ms: int = 0) -> RecordedLine:
    return RecordedLine(dir=dir_, data=data, at_ms=at_ms)


async def everything(receive: ReplayChannel, lines: list[RecordedLine]) -> dict[Direction, bytes]:
    """Says again what was said to it, and hears all that it says."""
    heard = {Direction.IN: b"", Direction.ERR: b""}

    async def hear(dir_: Direction) -> None:
        take = receive.receive if dir_ is Direction.IN else receive.receive_err
        while chunk := await take():
            heard[dir_] += chunk

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hear, Direction.IN)
        tasks.start_soon(hear, Direction.ERR)
        for each in lines:
            if each.dir is Direction.OUT:
                await receive.send(each.encoded)
    return heard


@pytest.mark.requirement("runtime.replay")
@given(lines=LINES, sizes=st.lists(st.integers(1, 7), min_size=1))
def test_however_it_is_cut_into_chunks_every_byte_comes_in_order(lines: list[RecordedLine], sizes: list[int]) -> None:
    channel = ReplayChannel(lines, chunk_sizes=cycle(sizes))

    heard = run(lambda: everything(channel, lines))

    assert heard == {
        dir_: b"".join(each.encoded for each in lines if each.dir is dir_) for dir_ in (Direction.IN, Direction.ERR)
    }
    assert channel.unexpected_sends == 0


def test_what_followed_a_line_of_ours_comes_only_when_that_line_is_said_again() -> None:
    lines = [
        said(Direction.IN, b"hello"),
        said(Direction.OUT, b"ask"),
        said(Direction.IN, b"answer"),
        said(Direction.ERR, b"oh"),
    ]

    async def main() -> list[bytes]:
        channel = ReplayChannel(lines)
        heard = [await channel.receive()]
        await channel.send(b"something else\n")
        for receive in (channel.receive, channel.receive_err):
            with anyio.move_on_after(0) as patience:
                heard.append(await receive())
            assert patience.cancelled_caught
        await channel.send(b"ask\n")
        heard += [await channel.receive(), await channel.receive_err(), await channel.receive()]
        await channel.send(b"one more\n")
        assert channel.unexpected_sends == 2
        assert await channel.wait(deadline_s=1) == EXITED
        return heard

    assert run(main) == [b"hello\n", b"answer\n", b"oh\n", b""]


def test_one_that_was_killed_says_half_a_line_and_takes_no_more() -> None:
    lines = [said(Direction.IN, b"one"), RecordedLine(dir=Direction.IN, data=b"tw", is_torn=True)]

    async def main() -> None:
        channel = ReplayChannel(lines, exit_status=KILLED)
        assert [await channel.receive(), await channel.receive()] == [b"one\ntw", b""]
        with pytest.raises(HangupError):
            await channel.send(b"still there?\n")
        assert await channel.wait(deadline_s=1) == KILLED

    run(main)


def test_at_the_speed_it_had_it_waits_as_long_as_it_did() -> None:
    lines = [
        said(Direction.IN, b"a", at_ms=1000),
        said(Direction.OUT, b"b", at_ms=1500),
        said(Direction.IN, b"c", at_ms=1750),
    ]
    naps: list[float] = []

    async def sleep(delay_s: float) -> None:
        naps.append(delay_s)

    async def main() -> list[bytes]:
        channel = ReplayChannel(lines, sleep=sleep)
        first = await channel.receive()
        await channel.send(b"b\n")
        return [first, await channel.receive()]

    assert run(main) == [b"a\n", b"c\n"]
    assert naps == [0, 0.25]


def test_chunks_are_no_larger_than_asked_for() -> None:
    async def pieces(sizes: Iterator[int]) -> list[bytes]:
        channel = ReplayChannel([said(Direction.IN, b"abc"), said(Direction.IN, b"def")], chunk_sizes=sizes)
        taken = []
        while chunk := await channel.receive():
            taken.append(chunk)
        return taken

    assert run(lambda: pieces(cycle([3, 2]))) == [b"abc", b"\nd", b"ef\n"]
