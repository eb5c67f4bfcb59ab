"""A websocket with somebody at its other end, and with nobody."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from proctor.contain.intent import open_intents
from proctor.contain.launch import LaunchPlan
from proctor.errors import HangupError, PeerError, RefusedError
from proctor.runtime.codex_app_server import listening_server
from proctor.runtime.codex_app_server.listening_server import open_listening
from proctor.transport.process import open_process
from proctor.transport.tree import StopDeadlines
from proctor.transport.websocket import connect

TOKEN = "a-token-of-the-test"


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(20):
            await test()

    anyio.run(bounded)


def guard(connection: ServerConnection, request: Request) -> Response | None:
    if request.headers.get("Authorization") == f"Bearer {TOKEN}" and "Origin" not in request.headers:
        return None
    return connection.respond(401, "no")


@asynccontextmanager
async def listening(handler: Callable[[ServerConnection], Awaitable[None]]) -> AsyncIterator[str]:
    async with serve(handler, "127.0.0.1", 0, process_request=guard, compression=None, max_size=None) as server:
        [listener] = server.sockets
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}"


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


def test_messages_go_whole_in_both_directions_however_large() -> None:
    async def test() -> None:
        async with listening(echo) as url:
            wire = await connect(url, token=TOKEN, deadline_s=5)
            for message in (b"{}", "ä\n€".encode(), b"x" * (5 << 20)):
                await wire.send(message)
                assert await wire.receive() == message
            await wire.close()
            assert await wire.receive() == b""
            with pytest.raises(HangupError, match="the websocket is closed"):
                await wire.send(b"{}")

    run(test)


def test_a_connection_that_is_cut_off_or_closed_is_at_its_end() -> None:
    async def bye(connection: ServerConnection) -> None:
        await connection.send("")
        await connection.send("last words")

    async def cut(connection: ServerConnection) -> None:
        await connection.send("last words")
        await connection.recv()
        connection.transport.abort()

    async def test() -> None:
        for handler in (bye, cut):
            async with listening(handler) as url:
                wire = await connect(url, token=TOKEN, deadline_s=5)
                assert await wire.receive() == b"last words"
                if handler is cut:
                    await wire.send(b"now")
                assert await wire.receive() == b""
                await wire.close()

    run(test)


def test_a_wrong_token_is_refused() -> None:
    async def test() -> None:
        async with listening(echo) as url:
            with pytest.raises(RefusedError, match="HTTP 401"):
                await connect(url, token="another", deadline_s=5)

    run(test)


def test_where_nobody_listens_or_answers_that_is_said_by_the_deadline() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            port = deaf.getsockname()[1]
            with pytest.raises(HangupError, match=f":{port}: TimeoutError"):
                await connect(f"ws://127.0.0.1:{port}", token=TOKEN, deadline_s=0.05)
        with pytest.raises(HangupError, match=f":{port}: ConnectionRefusedError"):
            await connect(f"ws://127.0.0.1:{port}", token=TOKEN, deadline_s=5)

    run(test)


@pytest.mark.requirement("schedule.recovery")
@pytest.mark.parametrize(
    ("line", "message"),
    [("echo no >&2; exit 3", "ended before it printed its address"), ("cat", "did not print its address within 0.2 s")],
)
def test_server_that_does_not_listen_has_its_own_code(
    tmp_path: Path, shell: Callable[[str], LaunchPlan], monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.setattr(listening_server, "START_S", 0.2 if line == "cat" else 20.0)

    async def test() -> None:
        async with (
            open_intents(tmp_path / "spawns") as intents,
            open_process(shell(line), intents=intents, deadlines=StopDeadlines(eof_s=0.1)) as process,
        ):
            with pytest.RaisesGroup(pytest.RaisesExc(PeerError, match=message)) as raised:
                async with open_listening(process, TOKEN):
                    pass
            [error] = raised.value.exceptions
            assert isinstance(error, PeerError)
            assert error.code == "peer.not-listening"

    run(test)
