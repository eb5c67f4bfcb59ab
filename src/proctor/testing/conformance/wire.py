"""A fault channel that also records which faults applied and what was sent to the agent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from proctor.transport.channel import Channel
from proctor.transport.fault import FaultChannel, LineFault
from proctor.transport.tree import ExitStatus


def anything(_: bytes) -> bool:
    return True


@dataclass(slots=True)
class _Counting:
    """A test of lines that counts its matches."""

    test: Callable[[bytes], bool]
    fits: int = 0

    def __call__(self, line: bytes) -> bool:
        does_fit = self.test(line)
        self.fits += does_fit
        return does_fit


class Wire:
    """A `Channel` with planned faults. `sent` is everything that was sent to the agent."""

    def __init__(self, channel: Channel, plan: Sequence[LineFault]) -> None:
        self._counting = [_Counting(each.at) for each in plan if not isinstance(each.at, int)]
        assert len(self._counting) == len(plan), "the suite selects lines by content, not by number"
        faults = [replace(each, at=count) for each, count in zip(plan, self._counting, strict=True)]
        self._fault = FaultChannel(channel, faults)
        self.sent = bytearray()

    @property
    def lines_delivered(self) -> int:
        return self._fault.lines_delivered

    @property
    def has_broken(self) -> bool:
        """Whether each fault matched at least one line."""
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
