"""The scripted model as an HTTP server on loopback. One server plays all scripts, each under its own path."""

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
from proctor.model.exchange import Exchange, ScriptSlot
from proctor.model.journal import Rows
from proctor.model.player import Player
from proctor.model.script import Script

_GRACE_S: Final = 1
_KEEP_ALIVE_S: Final = 3600  # to the agent, closing an idle connection while it reuses it looks like a fault
_KEY = re.compile(r"[A-Za-z0-9._~-]+")

# A separate logger, because an embedding program may use uvicorn's.
_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.CRITICAL)


class ScriptedModel:
    """A running server. Each script is played under a key, for one attempt."""

    def __init__(self, url: str, exchange: Exchange) -> None:
        self.url = url
        self._exchange = exchange

    def play(self, key: str, script: Script) -> str:
        """Start a script at its first step and return the base URL for the agent.

        Raises ValueError if the key has characters other than letters, digits, `.`, `_`, `~` and `-`.
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"the key cannot be part of a URL: {key!r}")
        self._exchange.slots[key] = ScriptSlot(player=Player(key, script))
        return f"{self.url}/a/{key}/v1"

    def forget(self, key: str) -> None:
        """Stop a script and drop its journal."""
        self._exchange.slots.pop(key, None)

    def journal(self, key: str) -> Rows:
        """Return the journal of a script: its latest 500 requests."""
        return self._exchange.slots[key].journal.rows

    async def journal_until(self, key: str, condition: Callable[[Rows], bool]) -> Rows:
        """Wait until the journal meets a condition and return it. The caller sets the deadline."""
        return await self._exchange.slots[key].journal.until(condition)


class _QuietProtocol(H11Protocol):
    """HTTP that logs no errors: a stream that is cut is intended here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _LOG


@asynccontextmanager
async def open_model(
    *, host: str = "127.0.0.1", port: int = 0, clock: Clock = SYSTEM_CLOCK
) -> AsyncIterator[ScriptedModel]:
    """Serve in the caller's event loop, without changing signal handlers. Leaving the block cancels open answers.

    `port` 0 chooses a free port. Raises MachineError if the address cannot be used.
    """
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
    # Does what Server.serve does, without its signal handlers and its timer (10 ticks per second).
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield ScriptedModel(f"http://{host}:{listener.getsockname()[1]}", exchange)
    finally:
        exchange.abandon()
        with anyio.CancelScope(shield=True), anyio.move_on_after(2 * _GRACE_S):
            await server.shutdown(sockets=[listener])
