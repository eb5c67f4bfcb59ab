"""A model provider on loopback that looks at credentials: it lets one through, and plays a script to each thread."""

import base64
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from proctor.clock import SYSTEM_CLOCK
from proctor.model.connection import Door, ModelLimits
from proctor.model.dialects import built_in_dialects
from proctor.model.exchange import Exchange, ScriptSlot
from proctor.model.journal import Journal, JournalRow
from proctor.model.player import Player, RequestKind
from proctor.model.script import Script
from proctor.testing.journals import TEXT_BYTES

DEADLINE_S = 10
_THREADS = ("thread-id", "x-claude-code-session-id")
"""The headers in which Codex and Claude Code name their thread."""


@dataclass(slots=True)
class Provider:
    """`asked` is every request: its path, and the credential it came with. `accounts` answers what else is asked.

    `first` is what the first threads are played instead of `steps`: a step, or several.
    """

    steps: list[Mapping[str, Any]]
    bearer: str
    first: tuple[Mapping[str, Any] | Sequence[Mapping[str, Any]], ...] = ()
    accounts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""
    _exchange: Exchange = field(default_factory=lambda: Exchange(SYSTEM_CLOCK, Door(ModelLimits(), lambda _: None)))

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def model_asked(self) -> set[str | None]:
        """The credentials that the model was asked with."""
        return {credential for path, credential in self.asked if path == "/v1/responses"}

    def journal(self, thread: str) -> list[JournalRow]:
        """What a thread asked of the model: its requests, without those beside the conversation."""
        rows = self._exchange.slots[thread].journal.rows
        return [row for row in rows if row.kind is not RequestKind.SIDE]

    @property
    def threads(self) -> list[str]:
        """Every thread that asked for a reply, in order."""
        return list(self._exchange.slots)

    def heard(self) -> str:
        """What the conversations said to it."""
        return "\n".join(
            text for stage in self._exchange.slots.values() for row in stage.journal.rows for text in row.texts
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        path, credential = scope["path"], headers.get("authorization")
        self.asked.append((path, credential))
        if path in self.accounts:
            await JSONResponse(self.accounts[path])(scope, receive, send)
        elif credential != f"Bearer {self.bearer}" and headers.get("x-api-key") != self.bearer:
            refusal = {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}
            await JSONResponse(refusal, status_code=401)(scope, receive, send)
        else:
            key = next((headers[name] for name in _THREADS if name in headers), "none")
            if key not in self._exchange.slots:
                so_far = len(self._exchange.slots)
                own = self.first[so_far] if so_far < len(self.first) else self.steps
                steps = [own] if isinstance(own, Mapping) else list(own)
                script = msgspec.convert({"version": 1, "steps": steps}, Script)
                player = Player(key, script, dialects=built_in_dialects())
                self._exchange.slots[key] = ScriptSlot(
                    player=player, token="", journal=Journal(key, text_bytes=TEXT_BYTES)
                )
            slot = self._exchange.slots[key]
            with suppress(ClientDisconnect):
                await self._exchange.respond(slot, Request(scope, receive), send, path=path)


@contextmanager
def open_provider(
    *steps: Mapping[str, Any],
    bearer: str,
    accounts: Mapping[str, Mapping[str, Any]] | None = None,
    first: tuple[Mapping[str, Any] | Sequence[Mapping[str, Any]], ...] = (),
) -> Iterator[Provider]:
    """Served in a thread of its own. What it is asked before it is up waits at the socket."""
    provider = Provider(list(steps), bearer, first, accounts or {})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        provider.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(provider, lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield provider
        finally:
            server.should_exit = True
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def jwt(**claims: Any) -> str:
    """A web token that nobody signed. It ends with the world unless told otherwise."""
    parts = ({"alg": "none"}, {"exp": 4102444800, **claims})
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join((*coded, "c2lnbmF0dXJl"))
