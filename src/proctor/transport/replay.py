"""A channel that replays a recorded conversation in memory, without a process."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import anyio
import anyio.lowlevel

from proctor.errors import HangupError
from proctor.event.row import Direction
from proctor.transport.tree import ExitStatus

EXITED = ExitStatus(code=0)
KILLED = ExitStatus(signal=9)
_CHUNK_BYTES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLine:
    """One recorded line of stdin, stdout or stderr."""

    dir: Direction
    data: bytes
    """The bytes of the line, without its line end."""
    at_ms: int = 0
    """Wall-clock time of the line, in milliseconds since the epoch."""
    is_torn: bool = False
    """Whether the process ended in the middle of the line, so that it has no line end."""

    @property
    def encoded(self) -> bytes:
        """The bytes of the line as they were on the channel, with the line end if it had one."""
        return self.data if self.is_torn else self.data + b"\n"


class ReplayChannel:
    """Replays recorded output. Output that followed a line of input is delivered only after that line is sent again.

    `chunk_sizes` sets the sizes of the received chunks, regardless of lines. With `sleep`, output arrives at its
    recorded pace. `exit_status` is how the process ended after its last line. `unexpected_sends` counts the sends that
    differ from the recorded input.
    """

    def __init__(
        self,
        lines: Sequence[RecordedLine],
        *,
        exit_status: ExitStatus = EXITED,
        chunk_sizes: Iterator[int] | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self.unexpected_sends = 0
        self._exit_status = exit_status
        self._chunk_sizes = chunk_sizes or repeat(_CHUNK_BYTES)
        self._sleep = sleep
        self._input = [each for each in lines if each.dir is Direction.OUT]
        self._sent = 0
        self._at_ms = lines[0].at_ms if lines else 0
        self._stdout = _Stream(lines, Direction.IN)
        self._stderr = _Stream(lines, Direction.ERR)
        self._released = anyio.Event()

    async def receive(self) -> bytes:
        return await self._next(self._stdout)

    async def receive_err(self) -> bytes:
        return await self._next(self._stderr)

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self._sent == len(self._input):
            if self._exit_status != EXITED:
                raise HangupError("peer.hangup", "the recorded process has ended")
            self.unexpected_sends += 1
        elif data != self._input[self._sent].encoded:
            self.unexpected_sends += 1
        else:
            self._at_ms = self._input[self._sent].at_ms
            self._sent += 1
            self._released.set()
            self._released = anyio.Event()

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        return self._exit_status

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
    """The lines of one direction, each with the number of input lines that came before it."""

    def __init__(self, lines: Sequence[RecordedLine], dir_: Direction) -> None:
        self.buffer = bytearray()
        self._lines: list[tuple[int, RecordedLine]] = []
        self._next = 0
        sent = 0
        for each in lines:
            sent += each.dir is Direction.OUT
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
        self.buffer += self._lines[self._next][1].encoded
        self._next += 1

    def load_all(self, sent: int) -> None:
        while not self.is_over and self.is_released(sent) and len(self.buffer) < _CHUNK_BYTES:
            self.load()

    def take(self, size: int) -> bytes:
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken
