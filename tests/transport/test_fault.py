"""The fault transport does what its plan says, the same each time, however the bytes are cut into chunks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.transport.fault import Alter, Cut, Delay, Duplicate, FaultAction, FaultChannel, Hold, Inject, LineFault
from proctor.transport.process import ExitStatus

LINES = [b"one", b"two", b"three", b"four"]


@dataclass
class Spoken:
    """An agent that has said all of this, and ended."""

    chunks: list[bytes]
    sent: list[bytes] = field(default_factory=list)

    async def receive(self) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""

    async def receive_err(self) -> bytes:
        return b"complaint"

    async def send(self, data: bytes) -> None:
        self.sent.append(data)

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        return ExitStatus(code=0)


def through(plan: Sequence[LineFault], *chunks: bytes) -> tuple[bytes, FaultChannel]:
    """All that comes out at our end."""
    channel = FaultChannel(Spoken(list(chunks)), plan)

    async def listen() -> bytes:
        told = bytearray()
        while chunk := await channel.receive():
            told += chunk
        return bytes(told)

    return anyio.run(listen), channel


def said(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (Duplicate(), b"one\ntwo\ntwo\nthree\nfour\n"),
        (Hold(lines=1), b"one\nthree\ntwo\nfour\n"),
        (Hold(lines=9), b"one\nthree\nfour\ntwo\n"),
        (Delay(delay_s=0), b"one\ntwo\nthree\nfour\n"),
        (Inject(lines=(b"x", b"y")), b"one\ntwo\nx\ny\nthree\nfour\n"),
        (Alter(to=bytes.upper), b"one\nTWO\nthree\nfour\n"),
        (Cut(), b"one\n"),
        (Cut(keep_bytes=2), b"one\ntw"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bytes) else "",
)
@pytest.mark.parametrize("at", [2, b"two".__eq__])
def test_a_line_is_broken_as_planned(how: FaultAction, told: bytes, at: int) -> None:
    out, channel = through([LineFault(at=at, how=how)], said(LINES))
    assert out == told
    assert channel.lines_delivered == len([line for line in told.split(b"\n") if line])


def test_a_break_happens_as_often_as_it_says() -> None:
    def upper(times: int | None) -> bytes:
        return through([LineFault(at=lambda _: True, how=Alter(to=bytes.upper), times=times)], said(LINES))[0]

    assert upper(1) == b"ONE\ntwo\nthree\nfour\n"
    assert upper(2) == b"ONE\nTWO\nthree\nfour\n"
    assert upper(None) == b"ONE\nTWO\nTHREE\nFOUR\n"


def test_what_we_say_and_what_it_complains_of_passes_untouched() -> None:
    async def talk() -> tuple[bytes, list[bytes], ExitStatus | None]:
        agent = Spoken([])
        channel = FaultChannel(agent, [LineFault(at=lambda _: True, how=Cut())])
        await channel.send(b"hello")
        return await channel.receive_err(), agent.sent, await channel.wait(deadline_s=1)

    assert anyio.run(talk) == (b"complaint", [b"hello"], ExitStatus(code=0))


HOWS = st.one_of(
    st.just(Duplicate()),
    st.builds(Hold, lines=st.integers(0, 5)),
    st.just(Delay(delay_s=0)),
    st.just(Inject(lines=(b"injected",))),
    st.builds(Cut, keep_bytes=st.integers(0, 3)),
)


@given(
    st.lists(st.binary(min_size=1, max_size=4).map(lambda raw: raw.hex().encode()), max_size=9),
    st.lists(st.builds(LineFault, at=st.integers(1, 9), how=HOWS), max_size=4),
    st.data(),
)
def test_how_the_bytes_arrive_changes_nothing_and_no_line_is_lost(
    lines: list[bytes], plan: list[LineFault], data: st.DataObject
) -> None:
    whole = said(lines)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=5)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if whole[a:b]]
    out, channel = through(plan, *chunks)
    assert out == through(plan, whole)[0]
    told = [line for line in out.split(b"\n") if line]
    assert channel.lines_delivered == len(told)
    if not any(isinstance(each.how, Cut) for each in plan):
        assert channel.lines_received == len(lines)
        assert Counter(told) >= Counter(lines)
