"""The scripted model as an HTTP server on loopback. One server plays all scripts, each under its own path."""

import asyncio
import re
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import uvicorn
from anyio.lowlevel import checkpoint
from uvicorn.server import ServerState

from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.errors import MachineError
from proctor.evidence.scan import MODEL_PREFIX
from proctor.ids import RuntimeId
from proctor.model.connection import Connection, Door, ModelLimits, OnRefused, RefusalReason, RefusedClient
from proctor.model.dialects import Dialects, built_in_dialects, order_for
from proctor.model.exchange import Exchange, ScriptSlot
from proctor.model.journal import RECORDER, Journal, JournalRecorder, Rows
from proctor.model.player import Player
from proctor.model.script import Script

_GRACE_S: Final = 2
_KEEP_ALIVE_S: Final = 3600  # to the agent, closing an idle connection while it reuses it looks like a fault
_BACKLOG: Final = 1024
_NO_RESOURCE: Final = "socket.accept() out of system resource"  # asyncio's message for EMFILE and the like
_Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]
_TOKEN_BYTES: Final = 32
_KEY = re.compile(r"[A-Za-z0-9._~-]+")


class ScriptedModel:
    """A running server. Each script is played under a key, for one attempt."""

    def __init__(
        self, url: str, exchange: Exchange, *, dialects: Dialects, text_bytes: int, recorder: JournalRecorder | None
    ) -> None:
        self.url = url
        self._exchange = exchange
        self._dialects = dialects
        self._text_bytes = text_bytes
        self._recorder = recorder

    def play(
        self, key: str, script: Script, *, runtime_id: RuntimeId | None = None, ids_from: str | None = None
    ) -> str:
        """Start a script at its first step and return the base URL for the agent, which holds a new token.

        Without the token the script cannot be read or advanced. The dialect of the runtime is tried before all others.
        Ids of replies and calls are derived from `ids_from`, or else from the key: two scripts that one thread gets
        need different ones. Raises ValueError if the key has characters other than letters, digits, `.`, `_`, `~` and
        `-`.
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"the key cannot be part of a URL: {key!r}")
        self._exchange.forget(key)
        player = Player(ids_from or key, script, dialects=order_for(runtime_id, self._dialects))
        token = MODEL_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        journal = Journal(key, text_bytes=self._text_bytes)
        if self._recorder is not None:
            self._recorder.journals.append(journal)
        self._exchange.slots[key] = ScriptSlot(player=player, token=token, journal=journal)
        return f"{self.url}/a/{key}/{token}/v1"

    def forget(self, key: str) -> None:
        """Stop a script and drop its journal."""
        self._exchange.forget(key)

    def misfit(self, key: str) -> str | None:
        """Return why a script cannot play its current step; None if it can, or if no script has this key."""
        slot = self._exchange.slots.get(key)
        return None if slot is None else slot.player.misfit

    def journal(self, key: str) -> Rows:
        """Return the journal of a script: its latest 500 requests."""
        return self._exchange.slots[key].journal.rows

    async def journal_until(self, key: str, condition: Callable[[Rows], bool]) -> Rows:
        """Wait until the journal meets a condition and return it. The caller sets the deadline."""
        return await self._exchange.slots[key].journal.until(condition)


def _on_loop_error(
    loop: asyncio.AbstractEventLoop, context: dict[str, Any], door: Door, handler: "_Handler | None"
) -> None:
    """Report clients that cannot be accepted because too many files are open. The loop tries again by itself."""
    if str(context.get("message", "")).startswith(_NO_RESOURCE):
        door.on_refused(RefusedClient(why=RefusalReason.CROWDED, client="unknown", method="", path=""))
    elif handler is None:
        loop.default_exception_handler(context)
    else:
        handler(loop, context)


@asynccontextmanager
async def open_model(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    clock: Clock = SYSTEM_CLOCK,
    limits: ModelLimits | None = None,
    on_refused: OnRefused | None = None,
    dialects: Dialects | None = None,
    text_bytes: int = 0,
) -> AsyncIterator[ScriptedModel]:
    """Serve in the caller's event loop, without changing signal handlers. Leaving the block cancels open answers.

    `port` 0 chooses a free port. `dialects` are by default the built-in ones. `on_refused` is called for each client
    that belongs to no script. `text_bytes` is how many bytes of whole texts the journal of each script keeps; 0 keeps
    none. Raises MachineError if the address cannot be used.
    """
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise MachineError("machine.port", f"cannot listen on {host}:{port}: {error.strerror}") from error
    dialects = built_in_dialects() if dialects is None else dialects
    door = Door(limits or ModelLimits(), on_refused or (lambda _: None))
    exchange = Exchange(clock, door)
    config = uvicorn.Config(
        exchange,
        interface="asgi3",
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    config.load()
    # Not uvicorn's Server, which changes signal handlers, has a timer with 10 ticks per second, and waits for clients.
    state, loop = ServerState(), asyncio.get_running_loop()
    server = await loop.create_server(
        # asyncio accepts as many connections as its backlog at once, before it can close one.
        lambda: Connection(config, state, {}, door=door),
        sock=listener,
        backlog=1,
    )
    listener.listen(_BACKLOG)
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: _on_loop_error(loop, context, door, handler))
    try:
        recorder = RECORDER.get()
        yield ScriptedModel(
            f"http://{host}:{listener.getsockname()[1]}",
            exchange,
            dialects=dialects,
            text_bytes=text_bytes if recorder is None else max(text_bytes, recorder.text_bytes),
            recorder=recorder,
        )
    finally:
        loop.set_exception_handler(handler)
        server.close()
        exchange.abandon()
        with anyio.CancelScope(shield=True), anyio.move_on_after(_GRACE_S):
            # The answers end first. Then a connection may still be opening, which takes two turns of the event loop.
            for _ in range(3):
                await checkpoint()
                for connection in tuple(state.connections):
                    connection.transport.abort()
            if state.tasks:
                await asyncio.wait(tuple(state.tasks))
            await checkpoint()
