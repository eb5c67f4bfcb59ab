"""A channel wrapper that injects planned faults into the lines a real agent writes."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio

from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter
from proctor.transport.channel import Channel
from proctor.transport.tree import ExitStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """Deliver the line twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Deliver the line after later ones, or at the end of the stream."""

    lines: int
    """How many later lines to deliver first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Deliver the line, and everything after it, `delay_s` seconds later."""

    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Inject:
    """Deliver extra lines, which the agent never wrote, after the line."""

    lines: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alter:
    """Deliver another line in its place, for example a malformed or an overlong one."""

    to: Callable[[bytes], bytes]
    """Returns the replacement, without a line end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Close the channel at this line; held lines are lost. The agent itself keeps running."""

    keep_bytes: int = 0
    """How many bytes of the line are still delivered."""
    hides_exit: bool = False
    """Whether the exit status is lost as well. Otherwise an agent that ends soon after looks as if it had crashed."""


FaultAction = Duplicate | Hold | Delay | Inject | Alter | Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFault:
    """One planned fault: which lines it affects and what it does to them."""

    at: int | Callable[[bytes], bool]
    """The number of the line, counted from 1, or a test of its bytes."""
    how: FaultAction
    times: int | None = 1
    """How many matching lines are affected at most; None means all."""

    def hits(self, line: bytes, *, number: int) -> bool:
        return number == self.at if isinstance(self.at, int) else self.at(line)


class FaultChannel:
    """A channel that passes lines on from another one, changed according to a plan.

    Deterministic: the same lines and the same plan give the same result. If several faults match a line, the first in
    the plan applies. `lines_received` counts the lines that the agent wrote, `lines_delivered` the lines passed on that
    are not blank.
    """

    def __init__(self, channel: Channel, plan: Sequence[LineFault]) -> None:
        self.lines_received = 0
        self.lines_delivered = 0
        self._channel = channel
        self._plan = plan
        self._remaining = [each.times for each in plan]
        self._splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES)
        self._ready: deque[bytes | Delay] = deque()
        # Lines to deliver later, each with the value of `lines_received` at which it is due.
        self._held: list[tuple[int, bytes]] = []
        self._is_over = False
        self._is_exit_hidden = False

    async def receive(self) -> bytes:
        while not self._ready and not self._is_over:
            chunk = await self._channel.receive()
            for line in self._splitter.feed(chunk):
                self._process_line(line)
            if not chunk:
                self._finish()
        data = bytearray()
        while self._ready:
            if isinstance(first := self._ready[0], Delay):
                if data:
                    break  # lines before the delayed one are not delayed
                await anyio.sleep(first.delay_s)
            else:
                data += first
            self._ready.popleft()
        return bytes(data)

    async def receive_err(self) -> bytes:
        return await self._channel.receive_err()

    async def send(self, data: bytes) -> None:
        await self._channel.send(data)

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        status = await self._channel.wait(deadline_s=deadline_s)
        return None if self._is_exit_hidden else status

    # ── fault injection ──

    def _process_line(self, line: bytes) -> None:
        if self._is_over:
            return
        self.lines_received += 1
        match self._action_for(line):
            case Duplicate():
                self._deliver(line, line)
            case Hold(lines=lines):
                self._held.append((self.lines_received + lines, line))
            case Delay() as delay:
                self._ready.append(delay)
                self._deliver(line)
            case Inject(lines=more):
                self._deliver(line, *more)
            case Alter(to=to):
                self._deliver(to(line))
            case Cut(keep_bytes=keep_bytes, hides_exit=hides_exit):
                self._is_exit_hidden = hides_exit
                self._ready.append(line[:keep_bytes])
                self.lines_delivered += bool(line[:keep_bytes].strip())
                self._is_over = True
                return  # a held line would be glued to the torn one
            case None:
                self._deliver(line)
        self._deliver(*(late for due, late in self._held if due <= self.lines_received))
        self._held = [(due, late) for due, late in self._held if due > self.lines_received]

    def _action_for(self, line: bytes) -> FaultAction | None:
        for index, each in enumerate(self._plan):
            remaining = self._remaining[index]
            if remaining != 0 and each.hits(line, number=self.lines_received):
                self._remaining[index] = None if remaining is None else remaining - 1
                return each.how
        return None

    def _deliver(self, *lines: bytes) -> None:
        self.lines_delivered += sum(bool(line.strip()) for line in lines)
        self._ready += [line + b"\n" for line in lines]

    def _finish(self) -> None:
        """Deliver the held lines and an incomplete last line: the agent has ended."""
        self._deliver(*(late for _, late in self._held))
        if (torn := self._splitter.rest()).strip():
            self.lines_received += 1
            self.lines_delivered += 1
            self._ready.append(torn)
        self._held = []
        self._is_over = True
