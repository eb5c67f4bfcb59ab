"""The interface of an agent process as a connection uses it: byte streams and an exit status."""

from typing import Protocol

from proctor.transport.tree import ExitStatus


class Channel(Protocol):
    """A process, an in-memory replay of one, or a wrapper around another channel."""

    async def receive(self) -> bytes:
        """Return the next bytes of stdout, empty at the end."""

    async def receive_err(self) -> bytes:
        """Return the next bytes of stderr, empty at the end."""

    async def send(self, data: bytes) -> None:
        """Write all of `data` to stdin. Raises HangupError if the peer no longer reads it."""

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        """Wait at most `deadline_s` seconds for the end. Return None if the peer still runs then."""
