"""Reconnect to a server that is still running: resume the threads that can be resumed, and end the others."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from proctor.clock import Clock
from proctor.errors import HangupError, PeerError
from proctor.event.row import ChannelClosed, StepTaken
from proctor.runtime.codex_app_server.connection import Connection

# The number of consecutive failed reconnections after which the connection is given up.
TRIES = 3


class Reopenable(Protocol):
    """A channel that can drop and come back."""

    async def reopen(self) -> bool: ...

    def drop(self) -> None: ...


class Reconnection:
    """The connection's `Link`: reopens the channel and resumes the sessions."""

    def __init__(self, channel: Reopenable, greet: Callable[[Connection], Awaitable[object]], *, clock: Clock) -> None:
        self._channel = channel
        self._greet = greet
        self._clock = clock
        self._failures = 0
        self._lost_s = 0.0

    async def reopen(self) -> bool:
        self._lost_s = self._clock.steady_s()
        return self._failures < TRIES and await self._channel.reopen()

    async def rejoin(self, connection: Connection) -> None:
        """Initialize the connection again and resume the sessions. Records that frames sent meanwhile are lost."""
        try:
            await self._greet(connection)
            for listener in connection.listeners():
                why = await listener.rejoin(connection.call_while_reopening)
                if why is None:
                    lost_ms = round((self._clock.steady_s() - self._lost_s) * 1000)
                    listener.tap.record(StepTaken(step="connection restored", detail={"lostMs": lost_ms}))
                else:
                    listener.tap.record(ChannelClosed(cause=why))
                    listener.on_hangup(why)
            self._failures = 0
            connection.resume()
        except PeerError as error:
            self._failures += 1
            connection.note(StepTaken(step="connection not restored", detail={"why": error.what}))
            if not isinstance(error, HangupError):  # after a hangup the channel is already closed
                self._channel.drop()
