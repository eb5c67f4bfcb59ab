"""The scripted model on loopback: one server plays every script, each under a path of its own."""

import logging
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.errors import MachineError
from proctor.model.exchange import Exchange, Stage
from proctor.model.journal import Rows
from proctor.model.player import Player
from proctor.model.script import Script

_GRACE_S: Final = 1
_KEEP_ALIVE_S: Final = 3600  # a connection closed just as it is used again looks to the agent like a fault
_KEY = re.compile(r"[A-Za-z0-9._~-]+")

# Uvicorn's own logger is the process's; an embedding program may use it.
_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.CRITICAL)


class ScriptedModel:
    """A running server. Each script is played under its key, for one attempt."""

    def __init__(self, url: str, exchange: Exchange) -> None:
        self.url = url
        self._exchange = exchange

    def play(self, key: str, script: Script) -> str:
        """Starts a script from its first step and returns the base URL to give to the agent."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"not fit for a URL: {key!r}")
        self._exchange.stages[key] = Stage(player=Player(key, script))
        return f"{self.url}/a/{key}/v1"

    def forget(self, key: str) -> None:
        """Ends a script and drops its journal."""
        self._exchange.stages.pop(key, None)

    def journal(self, key: str) -> Rows:
        """What was asked under a key, the latest requests only where there were very many."""
        return self._exchange.stages[key].journal.rows

    async def journal_until(self, key: str, holds: Callable[[Rows], bool]) -> Rows:
        """The journal, as soon as it is as wanted. The caller sets the deadline."""
        return await self._exchange.stages[key].journal.until(holds)


class _QuietProtocol(H11Protocol):
    """HTTP that tells the agent of its faults, and nobody else: a cut stream is no error here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _LOG


@asynccontextmanager
async def open_model(
    *, host: str = "127.0.0.1", port: int = 0, clock: Clock = SYSTEM_CLOCK
) -> AsyncIterator[ScriptedModel]:
    """Serves in the caller's event loop and touches no signal handler. Closing breaks off what is being answered."""
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise MachineError("machine.port", f"cannot listen on {host}:{port}: {error.strerror}") from error
    exchange = Exchange(clock)
    config = uvicorn.Config(
        exchange,
        interface="asgi3",
        http=_QuietProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        date_header=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )
    config.load()
    server = uvicorn.Server(config)
    # What Server.serve does, less its signal handlers and its ten ticks a second.
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield ScriptedModel(f"http://{host}:{listener.getsockname()[1]}", exchange)
    finally:
        exchange.abandon()
        with anyio.CancelScope(shield=True), anyio.move_on_after(2 * _GRACE_S):
            await server.shutdown(sockets=[listener])
