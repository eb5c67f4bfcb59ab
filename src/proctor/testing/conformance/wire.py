"""The fault transport between a real agent and us, with a memory of what it did and of what the agent was told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from proctor.transport.channel import Channel
from proctor.transport.fault import Break, FaultChannel
from proctor.transport.tree import ExitStatus


def anything(_: bytes) -> bool:
    return True


@dataclass(slots=True)
class _Counting:
    """A test of lines that counts how often it fits."""

    test: Callable[[bytes], bool]
    fits: int = 0

    def __call__(self, line: bytes) -> bool:
        does_fit = self.test(line)
        self.fits += does_fit
        return does_fit


class Wire:
    """A `Channel`."""

    def __init__(self, channel: Channel, plan: Sequence[Break]) -> None:
        self._counting = [_Counting(each.at) for each in plan if not isinstance(each.at, int)]
        assert len(self._counting) == len(plan), "the suite finds lines by what they say"
        faults = [replace(each, at=count) for each, count in zip(plan, self._counting, strict=True)]
        self._fault = FaultChannel(channel, faults)
        self.sent = bytearray()

    @property
    def lines_told(self) -> int:
        return self._fault.lines_told

    @property
    def has_broken(self) -> bool:
        """Whether each of the faults met a line."""
        return all(count.fits for count in self._counting)

    async def receive(self) -> bytes:
        return await self._fault.receive()

    async def receive_err(self) -> bytes:
        return await self._fault.receive_err()

    async def send(self, data: bytes) -> None:
        self.sent += data
        await self._fault.send(data)

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        return await self._fault.wait(deadline_s=deadline_s)
