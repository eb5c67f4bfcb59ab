"""The shared part of all `codex exec` sessions: home, program and facts. No process runs between turns."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from proctor.contain.launch import new_marker, wrap
from proctor.errors import RefusedError
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.ids import ThreadId
from proctor.runtime.base import HostRequest, SessionRequest, Tap
from proctor.runtime.codex.account import key_fact, login_refused, uses_account
from proctor.runtime.codex.home import codex_home, own_variables, return_login, write_home
from proctor.runtime.codex.program import refuse_too_old, version_in
from proctor.runtime.codex.retry_after import UTC_OFFSET
from proctor.runtime.codex.schema import digest_fact, read_schema
from proctor.runtime.codex.stored_threads import find_rollout
from proctor.runtime.codex.zone import utc_offset
from proctor.runtime.codex_exec.capabilities import CAPABILITIES, TRANSPORTS
from proctor.runtime.codex_exec.session import ExecSession
from proctor.runtime.executable import identity_fact, reported_version
from proctor.runtime.line_process import LineCount
from proctor.transport.process import run_once

LOGIN_DEADLINE_S: Final = 30.0
# The output of `codex login status`, and the app-server's name for it. It also shows a part of a key, which is ignored.
_LOGINS: Final = {"ChatGPT": "chatgpt", "an API key": "apikey", "personal access token": "personalAccessToken"}


class ExecHost:
    """Starts no process itself. Each session starts one process per turn."""

    is_alive = True

    def __init__(self, request: HostRequest, facts: Mapping[str, Fact]) -> None:
        self.facts = facts
        self._request = request
        self._count = LineCount()

    @property
    def frames_in(self) -> int:
        return self._count.lines

    async def _refuse_lost(self, request: SessionRequest) -> None:
        """Raise RefusedError if Codex has not stored the thread to continue. Codex itself refuses it with the turn."""
        if request.fork_through is not None:
            what = "codex exec forks whole threads only, and this one has been continued since the fork"
            raise RefusedError("peer.refused", what)
        thread = request.resume or request.fork
        if thread is not None and await anyio.to_thread.run_sync(self._rollout_of, thread) is None:
            raise RefusedError("peer.refused", f"Codex has no stored thread {thread}")

    def _rollout_of(self, thread: ThreadId) -> Path | None:
        return find_rollout(codex_home(self._request), thread)

    @asynccontextmanager
    async def open_session(self, request: SessionRequest, tap: Tap) -> AsyncIterator[ExecSession]:
        await self._refuse_lost(request)
        session = ExecSession(request, tap, host=self._request, count=self._count)
        try:
            yield session
        finally:
            # Shielded so that a cancelled attempt leaves no turn running; bounded by itself.
            with anyio.CancelScope(shield=True):
                await session.interrupt()
                await session.settle()


@asynccontextmanager
async def open_host(request: HostRequest, tap: Tap) -> AsyncIterator[ExecHost]:
    write_home(request)
    said = await reported_version(request, env=own_variables(request)) or ""
    version = refuse_too_old(version_in(said), said=said)
    facts = {
        "identity": identity_fact(msgspec.structs.replace(request.program, version=version)),
        "version": Fact(value=version, authority=Authority.REPORTED, source="--version"),
        "capability": Fact(
            value=msgspec.to_builtins(CAPABILITIES), authority=Authority.DECLARED, source="capabilities"
        ),
        "schemaDigest": digest_fact(await read_schema(request)),
        "transport": Fact(value=TRANSPORTS[0], authority=Authority.OBSERVED, source="how the process was started"),
        "containment": request.containment.fact(),
        "credentialSource": await _observe_login(request),
        UTC_OFFSET: utc_offset(request.env, clock=request.clock),
    }
    try:
        yield ExecHost(request, facts)
    finally:
        return_login(request)


async def _observe_login(request: HostRequest) -> Fact:
    """Return the fact `credentialSource`. Raises PeerError if Codex reports that it has no login."""
    if not uses_account(request.model):
        return key_fact(request.model)
    argv = [request.program.start_path, "login", "status"]
    plan = wrap(
        request.containment, argv, env={**request.env, **own_variables(request)}, cwd=request.home, marker=new_marker()
    )
    done = await run_once(plan, intents=request.intents, timeout_s=LOGIN_DEADLINE_S, max_output_bytes=4096)
    if done.exit is None:
        return UNKNOWN
    if done.exit.code != 0:
        raise login_refused(request.model)
    said = (done.stdout + done.stderr).decode(errors="replace")
    kind = next((kind for words, kind in _LOGINS.items() if f"Logged in using {words}" in said), None)
    source = "codex login status"
    return UNKNOWN if kind is None else Fact(value=kind, authority=Authority.REPORTED, source=source)
