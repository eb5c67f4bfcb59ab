"""The twin of a process in memory: it says again what one has said, against what was said to it then."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import anyio
import anyio.lowlevel

from proctor.errors import HangupError
from proctor.event.row import Dir
from proctor.transport.tree import ExitStatus

EXITED = ExitStatus(code=0)
KILLED = ExitStatus(signal=9)
_CHUNK_BYTES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A line on a channel, without its end: what the process said or complained of, or what was said to it.

    A torn one has no end: the process died over it.
    """

    dir: Dir
    data: bytes
    at_ms: int = 0
    is_torn: bool = False

    @property
    def whole(self) -> bytes:
        return self.data if self.is_torn else self.data + b"\n"


class ReplayChannel:
    """What followed a line of ours in the record comes when that line is said again, and not before.

    `chunk_sizes` cuts what it says into pieces, whatever its lines are; with a `sleep` it takes its time.
    After its last line it has ended as `ends` says. What is said to it and was not said then counts as `strays`.
    """

    def __init__(
        self,
        said: Sequence[Said],
        *,
        ends: ExitStatus = EXITED,
        chunk_sizes: Iterator[int] | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self.strays = 0
        self._ends = ends
        self._chunk_sizes = chunk_sizes or repeat(_CHUNK_BYTES)
        self._sleep = sleep
        self._due = [each for each in said if each.dir is Dir.OUT]
        self._sent = 0
        self._at_ms = said[0].at_ms if said else 0
        self._words = _Stream(said, Dir.IN)
        self._complaints = _Stream(said, Dir.ERR)
        self._released = anyio.Event()

    async def receive(self) -> bytes:
        return await self._next(self._words)

    async def receive_err(self) -> bytes:
        return await self._next(self._complaints)

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self._sent == len(self._due):
            if self._ends != EXITED:
                raise HangupError("peer.hangup", "it has ended")
            self.strays += 1
        elif data != self._due[self._sent].whole:
            self.strays += 1
        else:
            self._at_ms = self._due[self._sent].at_ms
            self._sent += 1
            self._released.set()
            self._released = anyio.Event()

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        return self._ends

    async def _next(self, stream: "_Stream") -> bytes:
        await anyio.lowlevel.checkpoint()
        while not stream.buffer:
            if stream.is_over:
                return b""
            if not stream.is_released(self._sent):
                await self._released.wait()
            elif self._sleep is None:
                stream.load_all(self._sent)
            else:
                at_ms = stream.next_at_ms
                await self._sleep(max(0, at_ms - self._at_ms) / 1000)
                self._at_ms = max(self._at_ms, at_ms)
                stream.load()
        return stream.take(next(self._chunk_sizes))


class _Stream:
    """The lines of one direction, each with how many of ours went before it."""

    def __init__(self, said: Sequence[Said], dir_: Dir) -> None:
        self.buffer = bytearray()
        self._lines: list[tuple[int, Said]] = []
        self._next = 0
        sent = 0
        for each in said:
            sent += each.dir is Dir.OUT
            if each.dir is dir_:
                self._lines.append((sent, each))

    @property
    def is_over(self) -> bool:
        return self._next == len(self._lines)

    @property
    def next_at_ms(self) -> int:
        return self._lines[self._next][1].at_ms

    def is_released(self, sent: int) -> bool:
        return self._lines[self._next][0] <= sent

    def load(self) -> None:
        self.buffer += self._lines[self._next][1].whole
        self._next += 1

    def load_all(self, sent: int) -> None:
        while not self.is_over and self.is_released(sent) and len(self.buffer) < _CHUNK_BYTES:
            self.load()

    def take(self, size: int) -> bytes:
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken
