"""One running app-server process: started contained, greeted, and stopped whole."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
import msgspec

from proctor import __version__
from proctor.clock import Clock
from proctor.contain.launch import wrap
from proctor.errors import MachineError, PeerError, lone
from proctor.fact import Authority, Fact
from proctor.runtime.base import HostAsk, SessionAsk, Tap
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.claims import CLAIMS, INSTALL, MINIMUM_VERSION
from proctor.runtime.codex_app_server.connection import Connection
from proctor.runtime.codex_app_server.home import write_home
from proctor.runtime.codex_app_server.session import DEADLINES, CodexSession, Deadlines
from proctor.transport.process import open_process

INITIALIZE_DEADLINE_S = 30.0
CLOSE_DEADLINE_S = 10.0
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
    write_home(ask)
    env = {**ask.env, "CODEX_HOME": str(ask.home), "HOME": str(ask.home), "TMPDIR": str(ask.env.get("TMPDIR", ask.tmp))}
    argv = [ask.executable.real_path, "app-server", "--listen", "stdio://"]
    plan = wrap(ask.containment, argv, env=env, cwd=ask.home, marker=ask.process)
    try:
        async with open_process(plan, intents=ask.intents) as process, anyio.create_task_group() as tasks:
            connection = Connection(process, tap, clock=ask.clock)
            tasks.start_soon(connection.run)
            try:
                version = await greet(connection)
                yield CodexHost(connection, _facts(ask, version), clock=ask.clock)
            finally:
                # Shielded so that cancellation cannot leave the program running; `stop` is bounded by itself.
                with anyio.CancelScope(shield=True):
                    await process.stop()
                    with anyio.move_on_after(CLOSE_DEADLINE_S):
                        await connection.closed.wait()
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise lone(group) from group


async def greet(connection: Connection) -> str:
    """Introduce ourselves, and learn the server's version. MachineError where that is too old."""
    reply = await connection.call("initialize", HELLO, deadline_s=INITIALIZE_DEADLINE_S)
    try:
        greeting = msgspec.json.decode(reply, type=wire.Initialized)
    except msgspec.DecodeError as error:
        raise PeerError("peer.wire", f"initialize: {error}") from error
    version = version_in(greeting.user_agent)
    if version is None or _numbers(version) < _numbers(MINIMUM_VERSION):
        found = version or f"unknown ({greeting.user_agent!r})"
        raise MachineError(
            "machine.binary-too-old", f"Codex {found} is older than {MINIMUM_VERSION}; install {INSTALL}"
        )
    connection.notify("initialized")
    return version


def version_in(user_agent: str) -> str | None:
    """The server's version; the name before the slash is the one we gave.

    >>> version_in("proctor/0.163.0 (Debian 12.0.0; x86_64) xterm (proctor; 0.1.0)")
    '0.163.0'
    """
    found = re.match(r"[^/]*/(\d+\.\d+\.\d+\S*)", user_agent)
    return None if found is None else found[1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _facts(ask: HostAsk, version: str) -> dict[str, Fact]:
    executable = msgspec.to_builtins(msgspec.structs.replace(ask.executable, version=version))
    is_locked = ask.executable.is_locked
    return {
        "identity": Fact(
            value=executable,
            authority=Authority.VERIFIED if is_locked else Authority.OBSERVED,
            source="sha256 of the file, compared with its wheel's RECORD" if is_locked else "sha256 of the file",
        ),
        "version": Fact(value=version, authority=Authority.REPORTED, source="initialize.userAgent"),
        "capability": Fact(value=msgspec.to_builtins(CLAIMS), authority=Authority.DECLARED, source="claims"),
        "containment": ask.containment.fact(),
        "environment": Fact(value=sorted(ask.env), authority=Authority.OBSERVED, source="names given to the process"),
    }
