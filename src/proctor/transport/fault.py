"""A channel that sits between a real agent and us, and breaks what the agent says by a plan."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio

from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter
from proctor.transport.channel import Channel
from proctor.transport.tree import ExitStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The line comes twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The line comes after so many later ones, or at the end where there are fewer."""

    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """The line, and with it all that follows, comes later."""

    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Inject:
    """After the line come others that the agent never said."""

    lines: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alter:
    """Another line comes in its place: malformed, too long, with another meaning; none where that is empty."""

    to: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The channel closes with this line, of which only so many bytes come; the agent itself lives on."""

    keep_bytes: int = 0


How = Duplicate | Hold | Delay | Inject | Alter | Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """What happens to a line: `at` is its number, counted from 1, or a test of what it says.

    A test may fit more than one line; at most `times` of them are broken, or all where that is None.
    """

    at: int | Callable[[bytes], bool]
    how: How
    times: int | None = 1

    def hits(self, line: bytes, *, number: int) -> bool:
        return number == self.at if isinstance(self.at, int) else self.at(line)


class FaultChannel:
    """Deterministic: the same lines and the same plan give the same lines. The first break of a line counts.

    `lines_heard` is what the agent said, `lines_told` what was given on.
    """

    def __init__(self, channel: Channel, plan: Sequence[Break]) -> None:
        self.lines_heard = 0
        self.lines_told = 0
        self._channel = channel
        self._plan = plan
        self._left = [each.times for each in plan]
        self._splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES)
        self._ready: deque[bytes | Delay] = deque()
        self._held: list[tuple[int, bytes]] = []
        self._is_over = False

    async def receive(self) -> bytes:
        while not self._ready and not self._is_over:
            chunk = await self._channel.receive()
            for line in self._splitter.feed(chunk):
                self._hear(line)
            if not chunk:
                self._finish()
        said = bytearray()
        while self._ready:
            if isinstance(first := self._ready[0], Delay):
                if said:
                    break  # what came before it is not late
                await anyio.sleep(first.delay_s)
            else:
                said += first
            self._ready.popleft()
        return bytes(said)

    async def receive_err(self) -> bytes:
        return await self._channel.receive_err()

    async def send(self, data: bytes) -> None:
        await self._channel.send(data)

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        return await self._channel.wait(deadline_s=deadline_s)

    # ── breaking ──

    def _hear(self, line: bytes) -> None:
        if self._is_over:
            return
        self.lines_heard += 1
        match self._break_of(line):
            case Duplicate():
                self._tell(line, line)
            case Hold(lines=lines):
                self._held.append((self.lines_heard + lines, line))
            case Delay() as delay:
                self._ready.append(delay)
                self._tell(line)
            case Inject(lines=more):
                self._tell(line, *more)
            case Alter(to=to):
                self._tell(to(line))
            case Cut(keep_bytes=keep_bytes):
                self._ready.append(line[:keep_bytes])
                self.lines_told += bool(line[:keep_bytes].strip())
                self._is_over = True
            case None:
                self._tell(line)
        self._tell(*(late for due, late in self._held if due <= self.lines_heard))
        self._held = [(due, late) for due, late in self._held if due > self.lines_heard]

    def _break_of(self, line: bytes) -> How | None:
        for index, each in enumerate(self._plan):
            left = self._left[index]
            if left != 0 and each.hits(line, number=self.lines_heard):
                self._left[index] = None if left is None else left - 1
                return each.how
        return None

    def _tell(self, *lines: bytes) -> None:
        self.lines_told += sum(bool(line.strip()) for line in lines)
        self._ready += [line + b"\n" for line in lines]

    def _finish(self) -> None:
        """The agent has ended: what is held comes now, and the line it left open."""
        self._tell(*(late for _, late in self._held))
        if (torn := self._splitter.rest()).strip():
            self.lines_heard += 1
            self.lines_told += 1
            self._ready.append(torn)
        self._held = []
        self._is_over = True
