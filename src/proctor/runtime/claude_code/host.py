"""The shared part of all Claude Code sessions: program, home and line count."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from proctor.errors import RefusedError, unwrap_single
from proctor.event.row import StepTaken
from proctor.fact import Authority, Fact
from proctor.ids import ThreadId
from proctor.runtime.base import HostRequest, SessionRequest, Tap
from proctor.runtime.claude_code import home
from proctor.runtime.claude_code.capabilities import CAPABILITIES, TRANSPORTS
from proctor.runtime.claude_code.history import find_home, last_reply
from proctor.runtime.claude_code.normalize import STARTED
from proctor.runtime.claude_code.program import refuse_old
from proctor.runtime.claude_code.session import DEADLINES, ClaudeSession, Deadlines
from proctor.runtime.claude_code.stored_history import StoredHistory, stored_history
from proctor.runtime.delivery import offer_of
from proctor.runtime.executable import identity_fact, reported_version
from proctor.runtime.line_process import LineCount, open_line_process
from proctor.spec.choices import Profile


class ClaudeHost:
    """Starts no process itself. Each session has its own process."""

    is_alive = True

    def __init__(self, request: HostRequest, facts: Mapping[str, Fact], *, deadlines: Deadlines = DEADLINES) -> None:
        self.facts = facts
        self._request = request
        self._count = LineCount()
        self._deadlines = deadlines
        self._homes: dict[ThreadId, Path] = {}

    async def _home_of(self, request: SessionRequest) -> HostRequest:
        """Create a home per session, because a session would run what another left there. A thread keeps its home.

        Raises RefusedError if the thread to continue is in no home.
        """
        thread = request.resume or request.fork
        if thread is None or request.profile is Profile.MINE:
            own = replace(self._request, home=self._request.home / "sessions" / request.attempt)
        else:
            kept = self._homes.get(thread) or await anyio.to_thread.run_sync(find_home, self._request.home, thread)
            if kept is None:
                raise RefusedError("peer.refused", f"Claude Code has no stored session {thread}")
            own = replace(self._request, home=kept)
        await anyio.to_thread.run_sync(home.write_home, own)
        return own

    async def _store_history(self, request: SessionRequest, own: HostRequest, tap: Tap) -> StoredHistory | None:
        """Write a long history of a new thread to a session file, and return it."""
        stored = stored_history(request, config=home.config_dir(own))
        if stored is not None:
            tap.record(offer_of(stored.conversion))
            at = datetime.fromtimestamp(self._request.clock.wall_ms() / 1000, UTC)
            await anyio.to_thread.run_sync(partial(stored.write, at=at))
        return stored

    @property
    def frames_in(self) -> int:
        return self._count.lines

    @asynccontextmanager
    async def open_session(self, request: SessionRequest, tap: Tap) -> AsyncIterator[ClaudeSession]:
        own = await self._home_of(request)
        resume_at: str | None = None
        if request.fork is not None and request.fork_through is not None:
            cut = partial(last_reply, home.config_dir(own), request.fork, request.fork_through)
            resume_at = await anyio.to_thread.run_sync(cut)
        fences = home.fences(own, request)
        started = {
            "ephemeral": home.is_ephemeral(request),
            "resumed": (request.resume or request.fork) is not None,
            "fenced": fences is not None,
        }
        stored, program = await self._store_history(request, own, tap), self._request.program.start_path
        try:
            async with anyio.create_task_group() as tasks:
                session = ClaudeSession(
                    request,
                    tap,
                    clock=self._request.clock,
                    tasks=tasks,
                    config=home.config_dir(own),
                    fences_fact=home.session_fences_fact(own, request, fences),
                    deadlines=self._deadlines,
                    stored=stored,
                )
                tap.record(StepTaken(step=STARTED, detail=started))
                async with open_line_process(
                    home.arguments(
                        program, request, resume_at=resume_at, stored=None if stored is None else stored.thread
                    ),
                    request=self._request,
                    listener=session,
                    tap=tap,
                    count=self._count,
                    env=home.variables(own, request),
                    cwd=request.workspace,
                    fences=fences,
                    is_in_reach=True,
                    is_program_checked=True,
                ) as line_process:
                    session.line_process = line_process
                    try:
                        yield session
                    finally:
                        # Shielded so that a cancelled attempt leaves no turn running; bounded by the deadlines.
                        with anyio.CancelScope(shield=True):
                            await session.close()
                        if session.thread is not None:
                            self._homes[session.thread] = own.home
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise unwrap_single(group) from group


@asynccontextmanager
async def open_host(request: HostRequest) -> AsyncIterator[ClaudeHost]:
    home.check_options(request.options)
    await anyio.to_thread.run_sync(home.write_home, request)
    version = refuse_old(await reported_version(request, env=home.own_variables(request)))
    yield ClaudeHost(request, _facts(request, version))


def _facts(request: HostRequest, version: str) -> dict[str, Fact]:
    return {
        "identity": identity_fact(msgspec.structs.replace(request.program, version=version)),
        "version": Fact(value=version, authority=Authority.REPORTED, source="--version"),
        "capability": Fact(
            value=msgspec.to_builtins(CAPABILITIES), authority=Authority.DECLARED, source="capabilities"
        ),
        "transport": Fact(value=TRANSPORTS[0], authority=Authority.OBSERVED, source="how the process was started"),
        "containment": request.containment.fact(),
    }
