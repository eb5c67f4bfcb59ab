"""A websocket client for an agent that listens on this machine; it sends and receives complete messages."""

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from proctor.errors import HangupError, RefusedError, extra_missing
from proctor.protocol.lines import MAX_LINE_BYTES

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

CLOSE_S = 1.0


class Socket:
    """One websocket connection. Made by `connect` only."""

    def __init__(self, connection: "ClientConnection") -> None:
        self._connection = connection

    async def receive(self) -> bytes:
        """Return the next message; empty once the connection is closed, for whatever reason."""
        from websockets.exceptions import ConnectionClosed

        message: str | bytes = b""
        with suppress(ConnectionClosed):
            # Empty messages are skipped: to the caller they would look like the end.
            while not message:
                message = await self._connection.recv()
        return message.encode() if isinstance(message, str) else message

    async def send(self, message: bytes) -> None:
        """Send one message. Raises HangupError if the connection is closed."""
        from websockets.exceptions import ConnectionClosed

        try:
            await self._connection.send(message, text=True)
        except ConnectionClosed as error:
            raise HangupError("peer.hangup", "the websocket is closed") from error

    async def close(self) -> None:
        """Close the connection: with a handshake if the peer answers in time, otherwise without."""
        with anyio.move_on_after(CLOSE_S):
            await self._connection.close()
        self._connection.transport.abort()

    def abort(self) -> None:
        """Drop the connection without a handshake, as a broken network does."""
        self._connection.transport.abort()


async def connect(url: str, *, token: str, deadline_s: float) -> Socket:
    """Connect within `deadline_s` seconds.

    Raises HangupError if no server answers at `url`, RefusedError if it rejects the handshake (for example the token),
    and MachineError if the `websocket` extra is not installed.
    """
    try:
        from websockets.asyncio.client import connect as dial
        from websockets.exceptions import InvalidHandshake, InvalidStatus
    except ModuleNotFoundError as error:
        raise extra_missing(error, extra="websocket") from error
    try:
        with anyio.fail_after(deadline_s):
            connection = await dial(
                url,
                additional_headers={"Authorization": f"Bearer {token}"},
                user_agent_header=None,
                # On loopback compression costs time and saves nothing.
                compression=None,
                max_size=MAX_LINE_BYTES,
                # A busy agent may answer pings late. Proctor's own stall clock detects silence.
                ping_interval=None,
                close_timeout=CLOSE_S,
                proxy=None,
            )
    except InvalidStatus as error:
        raise RefusedError("peer.refused", f"{url}: HTTP {error.response.status_code}") from error
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise HangupError("peer.hangup", f"{url}: {type(error).__name__} {error}") from error
    return Socket(connection)
