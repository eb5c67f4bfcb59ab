"""Runtimes that are the Codex app-server but for one thing they do wrong."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.config import plugins
from proctor.event.model import Event
from proctor.event.row import Row
from proctor.ids import RuntimeId
from proctor.runtime import registry
from proctor.runtime.base import Host, HostRequest, Normalizer, SessionRequest, Tap
from proctor.runtime.capability import Capabilities
from proctor.runtime.codex_app_server import RUNTIME as CODEX
from proctor.transport.channel import Channel

ID = RuntimeId("mutant")


class Changed:
    """Another object, but for what is said of it here."""

    def __init__(self, inner: Any, **changed: Any) -> None:
        self._inner = inner
        self.__dict__.update(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


Change = Callable[[Any], Any]


def same(it: Any) -> Any:
    return it


class Mutant:
    """Each part of it goes through a function on its way to whoever uses it."""

    id = ID

    def __init__(
        self,
        *,
        capabilities: Capabilities = CODEX.capabilities,
        channel: Change = same,
        ask: Change = same,
        tap: Change = same,
        session: Change = same,
        events: Callable[[Iterable[Event]], Iterable[Event]] = same,
        host: Callable[[HostRequest], None] | None = None,
    ) -> None:
        self.capabilities = capabilities
        self._channel, self._ask, self._tap, self._session = channel, ask, tap, session
        self._events = events
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(CODEX, name)

    def normalizer(self) -> Normalizer:
        inner, events = CODEX.normalizer(), self._events

        def feed(row: Row) -> Iterable[Event]:
            return list(events(inner.feed(row)))

        return Changed(inner, feed=feed)

    @asynccontextmanager
    async def open_host(self, request: HostRequest, tap: Tap) -> AsyncIterator[Host]:
        given = request.wrap_channel or same

        def between(channel: Channel) -> Channel:
            changed: Channel = self._channel(given(channel))
            return changed

        if self._host is not None:
            self._host(request)
        async with CODEX.open_host(replace(request, wrap_channel=between), tap) as host:

            @asynccontextmanager
            async def open_session(asked: SessionRequest, own: Tap) -> AsyncIterator[Any]:
                async with host.open_session(self._ask(asked), self._tap(own)) as session:
                    yield self._session(session)

            yield Changed(host, open_session=open_session)


class _Point:
    """Stands for the entry point of a runtime of ours."""

    value = "a mutant"
    dist = SimpleNamespace(name=plugins.OURS)

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def load(self) -> Any:
        return self._runtime


def register(monkeypatch: pytest.MonkeyPatch, runtime: Any) -> None:
    """As if it had been installed."""
    point: Any = _Point(runtime)
    found = {**registry.offers(), ID: plugins.Offer(id=ID, points=(point,))}
    monkeypatch.setattr(registry, "offers", lambda: found)


# ── channels ──


def losing(is_lost: Callable[[bytes], bool]) -> Change:
    """Lines that are lost on the way."""

    def change(channel: Channel) -> Any:
        rest = bytearray()

        async def receive() -> bytes:
            nonlocal rest
            while chunk := await channel.receive():
                *lines, last = (bytes(rest) + chunk).split(b"\n")
                rest = bytearray(last)
                if left := b"".join(line + b"\n" for line in lines if not is_lost(line)):
                    return left
            return b""

        return Changed(channel, receive=receive)

    return change


def overrun(channel: Channel) -> Any:
    """Keeps a few lines for a reader that is behind, and drops the rest."""

    async def receive() -> bytes:
        chunk = await channel.receive()
        lines = chunk.splitlines(keepends=True)
        return b"".join([*lines[:8], *lines[-1:]] if len(lines) > 9 else lines)

    return Changed(channel, receive=receive)


def mute(words: bytes) -> Change:
    """What holds these words is never sent."""

    def change(channel: Channel) -> Any:
        async def send(data: bytes) -> None:
            if words not in data:
                await channel.send(data)

        return Changed(channel, send=send)

    return change
