"""Requests to the server and their replies: a limited number at a time, with deadlines, and retried on overload."""

import random
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

import anyio
import msgspec

from proctor.errors import DeadlineError, HangupError, PeerError, RefusedError
from proctor.protocol import jsonrpc
from proctor.runtime.base import Tap
from proctor.runtime.codex_app_server.approvals import ApprovalHandler
from proctor.runtime.codex_app_server.route import Envelope

# With more requests at once the server starts to refuse some, and with thousands it leaves some unanswered.
IN_FLIGHT = 32
OVERLOADED = -32001
OVERLOAD_PAUSES_S = (0.1, 0.25, 0.5, 1.0)


class Ask(Protocol):
    """Sends a request, and returns its reply. Raises PeerError if it is refused or not answered by the deadline."""

    async def __call__(
        self, method: str, params: Any, *, deadline_s: float, listener: "Listener | None" = None
    ) -> msgspec.Raw: ...


class Listener(Protocol):
    """A session, as the connection uses it."""

    @property
    def tap(self) -> Tap: ...

    @property
    def approvals(self) -> ApprovalHandler: ...

    @property
    def can_signal_codex(self) -> bool:
        """Whether the commands of the session can send signals to Codex."""

    def on_message(self, envelope: Envelope, line: bytes) -> None: ...

    @property
    def is_gone(self) -> bool:
        """Whether `on_hangup` was called."""

    def on_hangup(self, cause: str) -> None: ...

    def on_connection_lost(self) -> None:
        """Handle the loss of the connection, which may be reopened."""

    async def rejoin(self, ask: Ask) -> str | None:
        """Resume the thread on a reopened connection. Return why it cannot be resumed, or None."""


@dataclass(slots=True)
class Pending:
    """A request without a reply. It outlives its caller, so that a late reply is recorded for the right session."""

    method: str
    listener: Listener | None
    done: anyio.Event = field(default_factory=anyio.Event)
    reply: Envelope | None = None
    lost: str | None = None
    is_given_up: bool = False


class Calls:
    """Open requests. `send` records and queues a request; `settle` must be called with each reply."""

    def __init__(
        self, send: Callable[[bytes, Listener | None], None], *, pauses_s: Sequence[float] = OVERLOAD_PAUSES_S
    ) -> None:
        self._send = send
        self._pauses_s = pauses_s
        self._ids = count(1)
        self._pending: dict[int, Pending] = {}
        self._slots = anyio.Semaphore(IN_FLIGHT, fast_acquire=True)
        self._hangup: str | None = None
        self._open = anyio.Event()
        self._open.set()

    @property
    def is_responsive(self) -> bool:
        """Whether every request that its caller gave up has been answered since."""
        return not any(pending.is_given_up for pending in self._pending.values())

    async def call(
        self, method: str, params: Any, *, deadline_s: float, listener: Listener | None = None, is_early: bool = False
    ) -> msgspec.Raw:
        """Send a request and return its reply. The deadline includes all waiting before it is sent.

        While the connection is being reopened, the request waits, unless `is_early`. Raises RefusedError, HangupError,
        DeadlineError, or PeerError if the server stays overloaded.
        """
        is_overloaded = False
        with anyio.move_on_after(deadline_s):
            for pause_s in (0.0, *self._pauses_s):
                # Any method may be retried after overload, because the refused request was not started.
                if pause_s:
                    await anyio.sleep(pause_s * random.uniform(0.8, 1.2))  # noqa: S311  jitter, not cryptography
                is_overloaded = False
                async with self._slots:
                    # Checked after each wait: there must be no await between this check and the sending.
                    while not (is_early or self._open.is_set()):
                        await self._open.wait()
                        if listener is not None and listener.is_gone:
                            raise HangupError("peer.hangup", f"{method}: the thread was lost with the connection")
                    reply = await self._ask(method, params, listener)
                if reply.error is None:
                    return reply.result if isinstance(reply.result, msgspec.Raw) else msgspec.Raw(b"null")
                if reply.error.code != OVERLOADED:
                    raise RefusedError("peer.refused", f"{method}: {reply.error.message}")
                is_overloaded = True
        if is_overloaded:
            raise PeerError("peer.overloaded", f"{method}: refused repeatedly because the server is overloaded")
        raise DeadlineError("peer.deadline", f"{method}: no reply within {deadline_s:g} s")

    async def _ask(self, method: str, params: Any, listener: Listener | None) -> Envelope:
        if self._hangup is not None:
            raise HangupError("peer.hangup", f"{method}: {self._hangup}")
        id_ = next(self._ids)
        self._send(jsonrpc.request(id_, method, params), listener)
        pending = self._pending[id_] = Pending(method, listener)
        try:
            await pending.done.wait()
        except BaseException:
            pending.is_given_up = True
            raise
        if pending.reply is None:
            raise HangupError("peer.hangup", f"{method}: {pending.lost}")
        return pending.reply

    def waiting_for(self, reply: Envelope) -> Pending | None:
        return self._pending.get(reply.id) if isinstance(reply.id, int) else None

    def unanswered(self, methods: Container[str]) -> list[Pending]:
        return [pending for pending in self._pending.values() if pending.method in methods]

    def settle(self, reply: Envelope) -> None:
        pending = self._pending.pop(reply.id, None) if isinstance(reply.id, int) else None
        if pending is not None:
            pending.reply = reply
            pending.done.set()

    def disown(self, listener: Listener) -> None:
        """Detach a listener from its open requests. Their replies then belong to no session."""
        for pending in self._pending.values():
            if pending.listener is listener:
                pending.listener = None

    def reopen(self) -> None:
        """Let waiting requests continue."""
        self._open.set()

    def lose(self, cause: str) -> None:
        """Fail all open requests, because their replies are lost. New ones wait for `reopen`."""
        self._open = anyio.Event()
        for pending in self._pending.values():
            pending.lost = cause
            pending.done.set()
        self._pending.clear()

    def hang_up(self, cause: str) -> None:
        """Fail all open and future requests."""
        self._hangup = cause
        self.lose(cause)
        self.reopen()
