"""One running app-server process: started contained, greeted, and stopped whole."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from proctor import __version__
from proctor.clock import Clock
from proctor.contain.launch import wrap
from proctor.errors import InputError, PeerError, lone
from proctor.event.row import StepTaken
from proctor.fact import Authority, Fact
from proctor.runtime.base import HostAsk, SessionAsk, Tap
from proctor.runtime.codex.home import overrides, own_variables, return_login, write_home
from proctor.runtime.codex.program import refuse_too_old
from proctor.runtime.codex.retry_after import UTC_OFFSET
from proctor.runtime.codex.zone import utc_offset
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.claims import CLAIMS, TRANSPORTS
from proctor.runtime.codex_app_server.connection import Connection
from proctor.runtime.codex_app_server.listening import arguments, new_token, open_listening
from proctor.runtime.codex_app_server.login import observe_login
from proctor.runtime.codex_app_server.rejoin import Reunion
from proctor.runtime.codex_app_server.schema import Spoken, read_spoken, refuse_incompatible, schema_fact
from proctor.runtime.codex_app_server.session import DEADLINES, CodexSession, Deadlines
from proctor.runtime.executable import identity_fact, reported_version
from proctor.transport.channel import Channel
from proctor.transport.process import AgentProcess, Patience, open_process

INITIALIZE_DEADLINE_S = 30.0
CLOSE_DEADLINE_S = 10.0
OLD_S = 5.0
HELLO = {
    "clientInfo": {"name": "proctor", "title": "Proctor", "version": __version__},
    # Without it there is no way to end a thread's background terminals.
    "capabilities": {"experimentalApi": True},
}


class CodexHost:
    """Carries as many sessions as the caller opens."""

    def __init__(
        self, connection: Connection, facts: Mapping[str, Fact], *, clock: Clock, deadlines: Deadlines = DEADLINES
    ) -> None:
        self.facts = facts
        self._connection = connection
        self._clock = clock
        self._deadlines = deadlines

    @property
    def is_alive(self) -> bool:
        return self._connection.is_usable

    @property
    def frames_in(self) -> int:
        return self._connection.frames_in

    @asynccontextmanager
    async def open_session(self, ask: SessionAsk, tap: Tap) -> AsyncIterator[CodexSession]:
        session = CodexSession(self._connection, ask, tap, clock=self._clock, deadlines=self._deadlines)
        try:
            await session.start()
            yield session
        finally:
            # Shielded so that a cancelled attempt still gives its thread back; bounded by the session's deadlines.
            with anyio.CancelScope(shield=True):
                await session.close()
            self._connection.forget(session)


@asynccontextmanager
async def open_host(ask: HostAsk, tap: Tap) -> AsyncIterator[CodexHost]:
    transport = transport_in(ask.options)
    write_home(ask)
    spoken = await read_spoken(ask)
    if spoken is not None:
        refuse_incompatible(spoken)
        if spoken.lacks:
            tap.say(StepTaken(step="the program lacks methods", detail={"methods": spoken.lacks}))
    try:
        async with _open_channel(ask, transport) as (process, channel, link), anyio.create_task_group() as tasks:
            heard = channel if ask.between is None else ask.between(channel)
            connection = Connection(heard, tap, clock=ask.clock, link=link)
            tasks.start_soon(connection.run)
            try:
                version = await _greeted(connection, ask)
                # One that prints no schema may not know this either, and would be waited for.
                said = None if spoken is None else await reported_version(ask, env=own_variables(ask))
                facts = _facts(ask, version, transport, spoken, said=said)
                facts["credentialSource"] = await observe_login(connection, ask.model)
                yield CodexHost(connection, facts, clock=ask.clock)
            finally:
                connection.is_closing = True
                # Shielded so that cancellation cannot leave the program running; `stop` is bounded by itself.
                with anyio.CancelScope(shield=True):
                    await process.stop()
                    with anyio.move_on_after(CLOSE_DEADLINE_S):
                        await connection.closed.wait()
                return_login(ask)
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise lone(group) from group


async def _greeted(connection: Connection, ask: HostAsk) -> str:
    """One that does not answer may be too old to know how: its version says more than that it hung up."""
    try:
        return await greet(connection)
    except PeerError:
        said = await reported_version(ask, env=own_variables(ask), timeout_s=OLD_S)
        if said is not None:
            found = re.search(r"\d+\.\d+\.\d+\S*", said)
            refuse_too_old(None if found is None else found[0], said=said)
        raise


@asynccontextmanager
async def _open_channel(ask: HostAsk, transport: str) -> AsyncIterator[tuple[AgentProcess, Channel, Reunion | None]]:
    """The program, contained, and the way to talk to it."""
    token = new_token()
    is_listening = transport == "websocket"
    how = arguments(token) if is_listening else ["--listen", "stdio://"]
    env = {**ask.env, **own_variables(ask)}
    argv = [ask.program.real_path, "app-server", *overrides(ask), *how]
    plan = wrap(ask.containment, argv, env=env, cwd=ask.home, marker=ask.process)
    # One that listens does not care for its stdin.
    patience = Patience(eof_s=0) if is_listening else None
    async with open_process(plan, intents=ask.intents, patience=patience) as process:
        if not is_listening:
            yield process, process, None
            return
        async with open_listening(process, token) as server:
            yield process, server, Reunion(server, greet, clock=ask.clock)


def transport_in(options: Mapping[str, Any]) -> str:
    """
    >>> transport_in({})
    'stdio'
    """
    transport = options.get("transport", TRANSPORTS[0])
    if transport not in TRANSPORTS:
        raise InputError("spec.type", f"transport is one of {', '.join(TRANSPORTS)}, not {transport!r}")
    return str(transport)


async def greet(connection: Connection) -> str:
    """Introduce ourselves, and learn the server's version. MachineError where that is too old."""
    reply = await connection.call_while_reopening("initialize", HELLO, deadline_s=INITIALIZE_DEADLINE_S)
    try:
        greeting = msgspec.json.decode(reply, type=wire.Initialized)
    except msgspec.DecodeError as error:
        raise PeerError("peer.wire", f"initialize: {error}") from error
    version = version_in(greeting.user_agent)
    version = refuse_too_old(version, said=greeting.user_agent)
    connection.notify("initialized")
    return version


def version_in(user_agent: str) -> str | None:
    """The server's version; the name before the slash is the one we gave.

    >>> version_in("proctor/0.163.0 (Debian 12.0.0; x86_64) xterm (proctor; 0.1.0)")
    '0.163.0'
    """
    found = re.match(r"[^/]*/(\d+\.\d+\.\d+\S*)", user_agent)
    return None if found is None else found[1]


def _facts(ask: HostAsk, version: str, transport: str, spoken: Spoken | None, *, said: str | None) -> dict[str, Fact]:
    return {
        "identity": identity_fact(msgspec.structs.replace(ask.program, version=said)),
        "version": Fact(value=version, authority=Authority.REPORTED, source="initialize.userAgent"),
        "schema": schema_fact(spoken),
        "capability": Fact(value=msgspec.to_builtins(CLAIMS), authority=Authority.DECLARED, source="claims"),
        "transport": Fact(value=transport, authority=Authority.OBSERVED, source="how the process was started"),
        "containment": ask.containment.fact(),
        UTC_OFFSET: utc_offset(ask.env, clock=ask.clock),
    }
