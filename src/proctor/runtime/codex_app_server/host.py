"""One running app-server process: start it contained, initialize it, and stop its whole process tree."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from proctor import __version__, decoding
from proctor.clock import Clock
from proctor.contain.launch import wrap
from proctor.errors import InputError, PeerError, unwrap_single
from proctor.event.row import StepTaken
from proctor.fact import Authority, Fact
from proctor.runtime.base import HostRequest, SessionRequest, Tap
from proctor.runtime.codex import program
from proctor.runtime.codex.home import as_arguments, mcp_servers, overrides, own_variables, return_login, write_home
from proctor.runtime.codex.program import refuse_too_old
from proctor.runtime.codex.retry_after import UTC_OFFSET
from proctor.runtime.codex.schema import SchemaMethods, digest_fact, read_schema
from proctor.runtime.codex.zone import utc_offset
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.capabilities import CAPABILITIES, TRANSPORTS
from proctor.runtime.codex_app_server.connection import Connection
from proctor.runtime.codex_app_server.listening_server import arguments, new_token, open_listening
from proctor.runtime.codex_app_server.login import observe_login
from proctor.runtime.codex_app_server.reconnect import Reconnection
from proctor.runtime.codex_app_server.schema import lacks, refuse_incompatible, schema_fact
from proctor.runtime.codex_app_server.session import DEADLINES, CodexSession, Deadlines
from proctor.runtime.executable import identity_fact, refuse_other_program, reported_version, running_fact
from proctor.transport.channel import Channel
from proctor.transport.process import AgentProcess, StopDeadlines, open_process

INITIALIZE_DEADLINE_S = 30.0
CLOSE_DEADLINE_S = 10.0
OLD_S = 5.0
HELLO = {
    "clientInfo": {"name": "proctor", "title": "Proctor", "version": __version__},
    # Needed to end a thread's background terminals.
    "capabilities": {"experimentalApi": True},
}


class CodexHost:
    """An app-server process that carries any number of sessions."""

    def __init__(
        self,
        connection: Connection,
        facts: Mapping[str, Fact],
        *,
        clock: Clock,
        marker: str,
        servers: frozenset[str] = frozenset(),
        deadlines: Deadlines = DEADLINES,
    ) -> None:
        self.facts = facts
        self._servers = servers
        self._connection = connection
        self._marker = marker
        self._clock = clock
        self._deadlines = deadlines

    @property
    def is_alive(self) -> bool:
        return self._connection.is_usable

    @property
    def frames_in(self) -> int:
        return self._connection.frames_in

    @asynccontextmanager
    async def open_session(self, request: SessionRequest, tap: Tap) -> AsyncIterator[CodexSession]:
        session = CodexSession(
            self._connection,
            request,
            tap,
            clock=self._clock,
            marker=self._marker,
            servers=self._servers,
            deadlines=self._deadlines,
        )
        try:
            await session.start()
            yield session
        finally:
            # Shielded so that a cancelled attempt still releases its thread; bounded by the session's deadlines.
            with anyio.CancelScope(shield=True):
                await session.close()
            self._connection.forget(session)


@asynccontextmanager
async def open_host(request: HostRequest, tap: Tap) -> AsyncIterator[CodexHost]:
    transport = transport_in(request.options)
    write_home(request)
    schema = await read_schema(request)
    if schema is not None:
        refuse_incompatible(schema)
        if missing := lacks(schema):
            tap.record(StepTaken(step="the program lacks methods", detail={"methods": missing}))
    try:
        async with _open_channel(request, transport) as (process, channel, link), anyio.create_task_group() as tasks:
            heard = channel if request.wrap_channel is None else request.wrap_channel(channel)
            connection = Connection(heard, tap, clock=request.clock, link=link)
            tasks.start_soon(connection.run)
            try:
                version = await _greeted(connection, request)
                running = await anyio.to_thread.run_sync(running_fact, request.program, process)
                refuse_other_program(request.program, running)
                # A program without a schema may not know `--version` either, and would then run until the timeout.
                said = None if schema is None else await reported_version(request, env=own_variables(request))
                facts = _facts(request, version, transport, schema, said=said)
                facts["runningProgram"] = running
                facts["credentialSource"] = await observe_login(connection, request.model)
                yield CodexHost(
                    connection,
                    facts,
                    clock=request.clock,
                    marker=request.process,
                    servers=await anyio.to_thread.run_sync(mcp_servers, request),
                )
            finally:
                connection.is_closing = True
                # Shielded so that cancellation cannot leave the program running; `stop` is bounded by itself.
                with anyio.CancelScope(shield=True):
                    await process.stop()
                    with anyio.move_on_after(CLOSE_DEADLINE_S):
                        await connection.closed.wait()
                return_login(request)
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise unwrap_single(group) from group


async def _greeted(connection: Connection, request: HostRequest) -> str:
    """Initialize the server. If it does not answer, report an old version instead of a hangup."""
    try:
        return await greet(connection)
    except PeerError:
        said = await reported_version(request, env=own_variables(request), timeout_s=OLD_S)
        if said is not None:
            refuse_too_old(program.version_in(said), said=said)
        raise


@asynccontextmanager
async def _open_channel(
    request: HostRequest, transport: str
) -> AsyncIterator[tuple[AgentProcess, Channel, Reconnection | None]]:
    """Start the program in the containment, and open the channel to it."""
    token = new_token()
    is_listening = transport == "websocket"
    how = arguments(token) if is_listening else ["--listen", "stdio://"]
    env = {**request.env, **own_variables(request)}
    argv = [request.program.start_path, "app-server", *as_arguments(overrides(request)), *how]
    plan = wrap(request.containment, argv, env=env, cwd=request.home, marker=request.process, fences=request.hiding)
    # A listening server ignores the end of its stdin.
    stop_deadlines = StopDeadlines(eof_s=0) if is_listening else None
    async with open_process(plan, intents=request.intents, deadlines=stop_deadlines) as process:
        if not is_listening:
            yield process, process, None
            return
        async with open_listening(process, token) as server:
            yield process, server, Reconnection(server, greet, clock=request.clock)


def transport_in(options: Mapping[str, Any]) -> str:
    """Return the option `transport`. Raises InputError if its value is unknown.

    >>> transport_in({})
    'stdio'
    """
    transport = options.get("transport", TRANSPORTS[0])
    if transport not in TRANSPORTS:
        raise InputError("spec.type", f"transport must be one of {', '.join(TRANSPORTS)}, not {transport!r}")
    return str(transport)


async def greet(connection: Connection) -> str:
    """Initialize the connection, and return the server's version. Raises MachineError if it is too old."""
    reply = await connection.call_while_reopening("initialize", HELLO, deadline_s=INITIALIZE_DEADLINE_S)
    try:
        greeting = decoding.decode(reply, wire.Initialized)
    except msgspec.DecodeError as error:
        raise PeerError("peer.wire", f"initialize: {error}") from error
    version = version_in(greeting.user_agent)
    version = refuse_too_old(version, said=greeting.user_agent)
    connection.notify("initialized")
    return version


def version_in(user_agent: str) -> str | None:
    """Return the server's version. The name before the slash is Proctor's.

    >>> version_in("proctor/0.163.0 (Debian 12.0.0; x86_64) xterm (proctor; 0.1.0)")
    '0.163.0'
    """
    found = re.match(r"[^/]*/(\d+\.\d+\.\d+\S*)", user_agent)
    return None if found is None else found[1]


def _facts(
    request: HostRequest, version: str, transport: str, schema: SchemaMethods | None, *, said: str | None
) -> dict[str, Fact]:
    return {
        "identity": identity_fact(msgspec.structs.replace(request.program, version=said)),
        "version": Fact(value=version, authority=Authority.REPORTED, source="initialize.userAgent"),
        "schema": schema_fact(schema),
        "schemaDigest": digest_fact(schema),
        "capability": Fact(
            value=msgspec.to_builtins(CAPABILITIES), authority=Authority.DECLARED, source="capabilities"
        ),
        "transport": Fact(value=transport, authority=Authority.OBSERVED, source="how the process was started"),
        "containment": request.containment.fact(),
        UTC_OFFSET: utc_offset(request.env, clock=request.clock),
    }
