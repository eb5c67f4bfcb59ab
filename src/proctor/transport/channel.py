"""The other end of a conversation, as far as a connection needs it."""

from typing import Protocol

from proctor.transport.tree import ExitStatus


class Channel(Protocol):
    """A process, its twin in memory, or something between either and us."""

    async def receive(self) -> bytes:
        """The next bytes it says, empty at the end."""

    async def receive_err(self) -> bytes:
        """The next bytes it complains with, empty at the end."""

    async def send(self, data: bytes) -> None:
        """Write all of it. HangupError where nobody reads."""

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        """How it ended, if it has within the deadline."""
