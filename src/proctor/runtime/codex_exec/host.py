"""What all sessions of `codex exec` share: a home, a program and what is known of it. Nothing runs between turns."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec

from proctor.contain.launch import new_marker, wrap
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.runtime.base import HostAsk, SessionAsk, Tap
from proctor.runtime.codex.account import keyed, not_taken, uses_account
from proctor.runtime.codex.home import own_variables, return_login, write_home
from proctor.runtime.codex.program import refuse_too_old
from proctor.runtime.codex.retry_after import UTC_OFFSET
from proctor.runtime.codex.zone import utc_offset
from proctor.runtime.codex_exec.claims import CLAIMS, TRANSPORTS
from proctor.runtime.codex_exec.session import ExecSession
from proctor.runtime.executable import identity_fact, reported_version
from proctor.runtime.talk import Count
from proctor.transport.process import run_once

LOGIN_DEADLINE_S: Final = 30.0
# What `codex login status` says, and the app-server's word for it. It also shows a part of a key, which is not read.
_LOGINS: Final = {"ChatGPT": "chatgpt", "an API key": "apikey", "personal access token": "personalAccessToken"}


class ExecHost:
    """Its sessions start the processes, one a turn."""

    is_alive = True

    def __init__(self, ask: HostAsk, facts: Mapping[str, Fact]) -> None:
        self.facts = facts
        self._ask = ask
        self._count = Count()

    @property
    def frames_in(self) -> int:
        return self._count.lines

    @asynccontextmanager
    async def open_session(self, ask: SessionAsk, tap: Tap) -> AsyncIterator[ExecSession]:
        session = ExecSession(ask, tap, host=self._ask, count=self._count)
        try:
            yield session
        finally:
            # Shielded so that a cancelled attempt leaves no turn running; bounded by itself.
            with anyio.CancelScope(shield=True):
                await session.interrupt()
                await session.settle()


@asynccontextmanager
async def open_host(ask: HostAsk, tap: Tap) -> AsyncIterator[ExecHost]:
    write_home(ask)
    said = await reported_version(ask, env=own_variables(ask)) or ""
    version = refuse_too_old(version_in(said), said=said)
    facts = {
        "identity": identity_fact(msgspec.structs.replace(ask.program, version=version)),
        "version": Fact(value=version, authority=Authority.REPORTED, source="--version"),
        "capability": Fact(value=msgspec.to_builtins(CLAIMS), authority=Authority.DECLARED, source="claims"),
        "transport": Fact(value=TRANSPORTS[0], authority=Authority.OBSERVED, source="how the process was started"),
        "containment": ask.containment.fact(),
        "credentialSource": await _observe_login(ask),
        UTC_OFFSET: utc_offset(ask.env, clock=ask.clock),
    }
    try:
        yield ExecHost(ask, facts)
    finally:
        return_login(ask)


def version_in(said: str) -> str | None:
    """
    >>> version_in("codex-cli 0.163.0")
    '0.163.0'
    """
    found = re.fullmatch(r"\S+ (\d+\.\d+\.\d+\S*)", said)
    return None if found is None else found[1]


async def _observe_login(ask: HostAsk) -> Fact:
    """What it says it logs in with. PeerError where it says: with nothing."""
    if not uses_account(ask.model):
        return keyed(ask.model)
    argv = [ask.program.real_path, "login", "status"]
    plan = wrap(ask.containment, argv, env={**ask.env, **own_variables(ask)}, cwd=ask.home, marker=new_marker())
    done = await run_once(plan, intents=ask.intents, timeout_s=LOGIN_DEADLINE_S, max_output_bytes=4096)
    if done.exit is None:
        return UNKNOWN
    if done.exit.code != 0:
        raise not_taken(ask.model)
    said = (done.stdout + done.stderr).decode(errors="replace")
    kind = next((kind for words, kind in _LOGINS.items() if f"Logged in using {words}" in said), None)
    source = "codex login status"
    return UNKNOWN if kind is None else Fact(value=kind, authority=Authority.REPORTED, source=source)
