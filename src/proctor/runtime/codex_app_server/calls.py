"""Our requests and the replies they wait for: few at a time, each with a deadline, overload backed off."""

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
from proctor.runtime.codex_app_server.approvals import Desk
from proctor.runtime.codex_app_server.route import Envelope

# Past this many at once the server starts to refuse, and past some thousands it forgets to answer.
IN_FLIGHT = 32
OVERLOADED = -32001
OVERLOAD_PAUSES_S = (0.1, 0.25, 0.5, 1.0)


class Ask(Protocol):
    """A request of ours, answered or refused by the deadline."""

    async def __call__(
        self, method: str, params: Any, *, deadline_s: float, listener: "Listener | None" = None
    ) -> msgspec.Raw: ...


class Listener(Protocol):
    """A session, as the connection knows it."""

    @property
    def tap(self) -> Tap: ...

    @property
    def desk(self) -> Desk: ...

    def heard(self, envelope: Envelope) -> None: ...

    @property
    def is_gone(self) -> bool:
        """Whether it was told that it hears no more."""

    def hung_up(self, cause: str) -> None: ...

    def dropped(self) -> None:
        """The connection was lost, and may come back."""

    async def rejoin(self, ask: Ask) -> str | None:
        """Take up its thread on a connection that was opened again; says why, where that cannot be."""


@dataclass(slots=True)
class Pending:
    """A request that has no reply yet. It outlives its caller, so that a late reply still finds its owner."""

    method: str
    listener: Listener | None
    done: anyio.Event = field(default_factory=anyio.Event)
    reply: Envelope | None = None
    lost: str | None = None
    is_given_up: bool = False


class Calls:
    """`send` records a request and queues it; `settle` is told of each reply."""

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
        """Whether no reply is missing that somebody was tired of waiting for."""
        return not any(pending.is_given_up for pending in self._pending.values())

    async def call(
        self, method: str, params: Any, *, deadline_s: float, listener: Listener | None = None, is_early: bool = False
    ) -> msgspec.Raw:
        """Ask and wait for the reply, no longer than the deadline with everything that comes before it.

        After a loss that is at first the reopening, unless the request is a part of it.
        """
        is_overloaded = False
        with anyio.move_on_after(deadline_s):
            for pause_s in (0.0, *self._pauses_s):
                # Overload may be tried again whatever the method: a request refused so was not begun.
                if pause_s:
                    await anyio.sleep(pause_s * random.uniform(0.8, 1.2))  # noqa: S311  jitter, not cryptography
                is_overloaded = False
                async with self._slots:
                    # Looked at again after each wait: between this and the sending there must be none.
                    while not (is_early or self._open.is_set()):
                        await self._open.wait()
                        if listener is not None and listener.is_gone:
                            raise HangupError("peer.hangup", f"{method}: its thread was lost with the connection")
                    reply = await self._ask(method, params, listener)
                if reply.error is None:
                    return reply.result if isinstance(reply.result, msgspec.Raw) else msgspec.Raw(b"null")
                if reply.error.code != OVERLOADED:
                    raise RefusedError("peer.refused", f"{method}: {reply.error.message}")
                is_overloaded = True
        if is_overloaded:
            raise PeerError("peer.overloaded", f"{method}: refused again and again because the server is overloaded")
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
        """Replies to this one's requests are nobody's from now on."""
        for pending in self._pending.values():
            if pending.listener is listener:
                pending.listener = None

    def reopen(self) -> None:
        """Everybody may ask again."""
        self._open.set()

    def lose(self, cause: str) -> None:
        """No reply will come to what was asked so far."""
        self._open = anyio.Event()
        for pending in self._pending.values():
            pending.lost = cause
            pending.done.set()
        self._pending.clear()

    def hang_up(self, cause: str) -> None:
        """No reply will come any more."""
        self._hangup = cause
        self.lose(cause)
        self.reopen()
