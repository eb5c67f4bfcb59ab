"""Connections to the scripted model. Without a token, a client may hold few connections, and each only for a while."""

import asyncio
import logging
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

# A separate logger, because an embedding program may use uvicorn's. A stream that is cut is intended here.
_LOG: Final = logging.getLogger(__name__)
_LOG.setLevel(logging.CRITICAL)

_MOST_STRANGERS: Final = 128


def _most_strangers() -> int:
    """Return an eighth of the files that this process may open, which Proctor also needs for agents and evidence."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_STRANGERS if soft == resource.RLIM_INFINITY else min(_MOST_STRANGERS, max(1, soft // 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """What clients may use."""

    head_s: float = 30
    """Time for the headers of a request, from its first byte or from the opening of the connection."""
    body_s: float = 60
    """Time for the body of a request."""
    body_bytes: int = 64 * 1024 * 1024
    """Size of all request bodies that one script receives at a time."""
    strangers: int = field(default_factory=_most_strangers)
    """Connections on which no valid token was received. Above this, the oldest is closed."""
    per_script: int = 16
    """Connections of the clients of one script. Above this, the one that was idle for longest is closed."""


class RefusalReason(StrEnum):
    """Why the scripted model refused a client."""

    PATH = "unknown-path"
    """No script is played at this path, or its token is another one."""
    MALFORMED = "malformed"
    """Not a valid HTTP request."""
    SLOW = "slow"
    """The request was not complete in time."""
    IDLE = "idle"
    """The connection was opened, and no request arrived in time."""
    CROWDED = "crowded"
    """There were too many connections without a valid token, and this one was the oldest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedClient:
    """One refusal of a client that belongs to no script."""

    why: RefusalReason
    client: str
    """Address and port of the client."""
    method: str = ""
    """The HTTP method; empty if no request was received."""
    path: str = ""
    """The path of the URL; empty if no request was received."""


OnRefused = Callable[[RefusedClient], None]


class _Waiting(StrEnum):
    """What a connection waits for, within a time limit."""

    REQUEST = "request"
    HEAD = "head"
    BODY = "body"


class Door:
    """What all connections of a server share."""

    def __init__(self, limits: ModelLimits, on_refused: OnRefused) -> None:
        self.limits = limits
        self.on_refused = on_refused
        self.strangers: dict[Connection, None] = {}
        """Connections on which no valid token was received, or whose script has ended. The oldest is first."""

    def enter(self, connection: "Connection") -> None:
        """Add a new connection to the strangers, and close the oldest above the limit."""
        connection.join(self.strangers)
        if len(self.strangers) > self.limits.strangers:
            # A request that was just received may hold a valid token.
            oldest = next((each for each in self.strangers if each.is_idle), next(iter(self.strangers)))
            oldest.drop(RefusalReason.CROWDED)

    def admit(self, connection: "Connection", clients: "dict[Connection, None]") -> bool:
        """Add a connection to the clients of a script. Return whether there is room for it.

        Above the limit, the connection that was idle for longest is closed.
        """
        if connection not in clients and len(clients) >= self.limits.per_script:
            idle = next((each for each in clients if each.is_idle), None)
            if idle is None:
                return False
            idle.transport.abort()
        connection.join(clients)
        return True


class Connection(H11Protocol):
    """One connection. It belongs to a group: the strangers, or the clients of one script."""

    def __init__(self, *args: Any, door: Door) -> None:
        super().__init__(*args)
        self.logger = _LOG
        # The application finds the connection of a request here.
        self.app_state = {"connection": self}
        self._door = door
        self._group = door.strangers
        self._waiting: _Waiting | None = None
        self._timer: asyncio.TimerHandle | None = None

    def join(self, group: "dict[Connection, None]") -> None:
        """Move to the end of a group."""
        self._group.pop(self, None)
        self._group = group
        group[self] = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def refuse(self, why: RefusalReason, *, method: str = "", path: str = "") -> None:
        """Report that the client is refused."""
        client = "unknown" if self.client is None else "{}:{}".format(*self.client)
        self._door.on_refused(RefusedClient(why=why, client=client, method=method, path=path))

    def drop(self, why: RefusalReason) -> None:
        """Refuse the client and close its connection."""
        self.refuse(why)
        # Not `close`, which waits until the client has read everything.
        self.transport.abort()

    # ── called by the event loop and by uvicorn ──

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for(_Waiting.REQUEST)
        self._door.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._group.pop(self, None)
        self._wait_for(None)
        # uvicorn keeps the timer after an error, and with it the connection.
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.ProtocolError:
            self.drop(RefusalReason.MALFORMED)
            return
        if self.conn.their_state is h11.SEND_BODY:
            self._wait_for(_Waiting.BODY)
        elif self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._wait_for(_Waiting.HEAD)
        else:
            self._wait_for(None)

    def send_400_response(self, msg: str) -> None:
        self.refuse(RefusalReason.MALFORMED)
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # an answer has begun
            self.transport.abort()

    def _wait_for(self, waiting: _Waiting | None) -> None:
        if waiting is self._waiting:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._waiting, self._timer = waiting, None
        if waiting is not None:
            limits = self._door.limits
            limit_s = limits.body_s if waiting is _Waiting.BODY else limits.head_s
            why = RefusalReason.IDLE if waiting is _Waiting.REQUEST else RefusalReason.SLOW
            self._timer = self.loop.call_later(limit_s, self.drop, why)
