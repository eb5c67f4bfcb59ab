"""An app-server that listens on loopback, and a websocket to it that can be reopened."""

import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from proctor.errors import DeadlineError, HangupError, PeerError
from proctor.transport.process import AgentProcess, ExitStatus
from proctor.transport.websocket import Socket, connect

START_S = 30.0
CONNECT_S = 5.0
# The pauses between attempts to reconnect while the process runs.
PAUSES_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
_ADDRESS = re.compile(rb"listening on: (ws://127\.0\.0\.1:\d+)\s")
_CHUNKS = 64


def new_token() -> str:
    return secrets.token_urlsafe(32)


def arguments(token: str) -> list[str]:
    """Return the arguments for a server that listens on a free port and prints its address.

    They contain only the digest of the token, so that the agent's shell cannot read the token anywhere.
    """
    digest = hashlib.sha256(token.encode()).hexdigest()
    return ["--listen", "ws://127.0.0.1:0", "--ws-auth", "capability-token", "--ws-token-sha256", digest]


class ListeningServer:
    """A `Channel` to a listening server. Create it with `open_listening`."""

    def __init__(self, process: AgentProcess, token: str) -> None:
        self._process = process
        self._token = token
        self._url = ""
        self._socket: Socket | None = None
        self._printed, self._to_tell = anyio.create_memory_object_stream[bytes](_CHUNKS)
        self._is_up = anyio.Event()

    async def receive(self) -> bytes:
        message = b"" if self._socket is None else await self._socket.receive()
        return message and message + b"\n"

    async def receive_err(self) -> bytes:
        """Return what the process prints. Its messages arrive over the socket only."""
        try:
            return await self._to_tell.receive()
        except anyio.EndOfStream:
            return b""

    async def send(self, data: bytes) -> None:
        if self._socket is None:
            raise HangupError("peer.hangup", "the websocket is closed")
        await self._socket.send(data.removesuffix(b"\n"))

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        return await self._process.wait(deadline_s=deadline_s)

    async def reopen(self) -> bool:
        """Reopen the websocket. Return False if the process has ended or cannot be reached in time."""
        for pause_s in PAUSES_S:
            if await self.wait(deadline_s=pause_s) is not None:
                return False
            try:
                self._socket = await connect(self._url, token=self._token, deadline_s=CONNECT_S)
            except PeerError:
                continue
            return True
        return False

    def drop(self) -> None:
        """Close the websocket at once. The process keeps running."""
        if self._socket is not None:
            self._socket.abort()

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()

    def forget(self) -> None:
        self._printed.close()
        self._to_tell.close()

    # ── start ──

    async def listen_in(self) -> None:
        """Collect the printed output until the process ends."""
        async with self._printed, anyio.create_task_group() as tasks:
            tasks.start_soon(self._collect, self._process.receive)
            tasks.start_soon(self._collect, self._process.receive_err)
        self._is_up.set()

    async def _collect(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        head = b""
        while chunk := await receive():
            if not self._url:
                head += chunk
                if found := _ADDRESS.search(head):
                    self._url = found[1].decode()
                    self._is_up.set()
            await self._printed.send(chunk)

    async def open(self) -> None:
        with anyio.move_on_after(START_S):
            await self._is_up.wait()
        if not self._url:
            if await self.wait(deadline_s=0) is not None:
                raise HangupError("peer.not-listening", "the app-server ended before it printed its address")
            what = f"the app-server did not print its address within {START_S:g} s"
            raise DeadlineError("peer.not-listening", what)
        self._socket = await connect(self._url, token=self._token, deadline_s=CONNECT_S)


@asynccontextmanager
async def open_listening(process: AgentProcess, token: str) -> AsyncIterator[ListeningServer]:
    """Connect to a listening server. Its output is read from the start, so that a full pipe never blocks it."""
    async with anyio.create_task_group() as tasks:
        server = ListeningServer(process, token)
        tasks.start_soon(server.listen_in)
        try:
            await server.open()
            yield server
        finally:
            # Shielded so that no socket is left open; bounded by itself.
            with anyio.CancelScope(shield=True):
                await server.close()
            tasks.cancel_scope.cancel()
            server.forget()
