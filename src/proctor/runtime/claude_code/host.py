"""What all sessions of Claude Code share: its program, its home, and the count of what was heard."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from proctor.errors import lone
from proctor.event.row import StepTaken
from proctor.fact import Authority, Fact
from proctor.ids import ThreadId
from proctor.runtime.base import HostAsk, SessionAsk, Tap
from proctor.runtime.claude_code import home
from proctor.runtime.claude_code.claims import CLAIMS, TRANSPORTS
from proctor.runtime.claude_code.login import ACCOUNT
from proctor.runtime.claude_code.normalize import STARTED
from proctor.runtime.claude_code.program import refuse_old
from proctor.runtime.claude_code.session import DEADLINES, ClaudeSession, Deadlines
from proctor.runtime.executable import identity_fact, reported_version
from proctor.runtime.talk import Count, open_talk


class ClaudeHost:
    """Starts nothing itself: each session has a process of its own."""

    is_alive = True

    def __init__(self, ask: HostAsk, facts: Mapping[str, Fact], *, deadlines: Deadlines = DEADLINES) -> None:
        self.facts = facts
        self._ask = ask
        self._count = Count()
        self._deadlines = deadlines
        self._homes: dict[ThreadId, Path] = {}

    async def _home_of(self, ask: SessionAsk) -> HostAsk:
        """A home for each session: what one leaves in its own, another would run. A thread keeps its first."""
        kept = self._homes.get(ask.resume or ask.fork or ThreadId(""))
        own = replace(self._ask, home=kept or self._ask.home / "sessions" / ask.attempt)
        await anyio.to_thread.run_sync(home.write_home, own)
        return own

    @property
    def frames_in(self) -> int:
        return self._count.lines

    @asynccontextmanager
    async def open_session(self, ask: SessionAsk, tap: Tap) -> AsyncIterator[ClaudeSession]:
        own = await self._home_of(ask)
        fences = home.fences(own, ask)
        started = {
            "ephemeral": home.is_ephemeral(ask),
            "resumed": (ask.resume or ask.fork) is not None,
            "fenced": fences is not None,
        }
        try:
            async with anyio.create_task_group() as tasks:
                session = ClaudeSession(
                    ask,
                    tap,
                    clock=self._ask.clock,
                    tasks=tasks,
                    config=home.config_dir(own),
                    fences_fact=home.raised(own, ask, fences),
                    deadlines=self._deadlines,
                )
                tap.say(StepTaken(step=STARTED, detail=started))
                async with open_talk(
                    home.arguments(self._ask.program.real_path, ask),
                    ask=self._ask,
                    listener=session,
                    tap=tap,
                    count=self._count,
                    env=home.variables(own, ask),
                    cwd=ask.workspace,
                    fences=fences,
                ) as talk:
                    session.talk = talk
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
            raise lone(group) from group


@asynccontextmanager
async def open_host(ask: HostAsk) -> AsyncIterator[ClaudeHost]:
    home.check_options(ask.options)
    await anyio.to_thread.run_sync(home.write_home, ask)
    # Even to say its version it looks for its settings.
    own = {ACCOUNT.home_variable: str(home.config_dir(ask)), "HOME": str(ask.home)}
    version = refuse_old(await reported_version(ask, env=own))
    yield ClaudeHost(ask, _facts(ask, version))


def _facts(ask: HostAsk, version: str) -> dict[str, Fact]:
    return {
        "identity": identity_fact(msgspec.structs.replace(ask.program, version=version)),
        "version": Fact(value=version, authority=Authority.REPORTED, source="--version"),
        "capability": Fact(value=msgspec.to_builtins(CLAIMS), authority=Authority.DECLARED, source="claims"),
        "transport": Fact(value=TRANSPORTS[0], authority=Authority.OBSERVED, source="how the process was started"),
        "containment": ask.containment.fact(),
    }
