"""What becomes of threads when the connection drops and the server lives: taken up again, or honestly ended."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from proctor.clock import Clock
from proctor.errors import HangupError, PeerError
from proctor.event.row import ChannelClosed, StepTaken
from proctor.runtime.codex_app_server.connection import Connection

# Of one connection after another that cannot be used, no more than these.
TRIES = 3


class Reopenable(Protocol):
    """A channel that can drop and come back."""

    async def reopen(self) -> bool: ...

    def drop(self) -> None: ...


class Reunion:
    """The connection's `Link`: told when it drops, and when it is open again."""

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
        """Greet the server anew and take up what can be taken up. Frames said meanwhile are lost, and that is told."""
        try:
            await self._greet(connection)
            for listener in connection.listeners():
                why = await listener.rejoin(connection.call_while_reopening)
                if why is None:
                    lost_ms = round((self._clock.steady_s() - self._lost_s) * 1000)
                    listener.tap.say(StepTaken(step="connection restored", detail={"lostMs": lost_ms}))
                else:
                    listener.tap.say(ChannelClosed(cause=why))
                    listener.hung_up(why)
            self._failures = 0
            connection.resume()
        except PeerError as error:
            self._failures += 1
            connection.note(StepTaken(step="connection not restored", detail={"why": error.what}))
            if not isinstance(error, HangupError):  # else it has dropped already
                self._channel.drop()
