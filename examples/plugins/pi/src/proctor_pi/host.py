"""Where sessions of pi come from. It runs nothing itself: each session has a process of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio
import msgspec

from proctor.errors import InputError, lone
from proctor.event.row import StepTaken
from proctor.fact import Authority, Fact
from proctor.runtime.base import HostAsk, SessionAsk, Tap
from proctor.runtime.capability import Claims
from proctor.runtime.executable import identity_fact
from proctor.runtime.talk import Count, open_talk
from proctor.spec.model import Profile
from proctor.transport.channel import Channel
from proctor_pi import kept
from proctor_pi.home import lay_out, sessions_of
from proctor_pi.lean import Lean, LeanChannel
from proctor_pi.session import PiSession

TRANSPORT: Final = "stdio"
CLAIMS: Final = Claims(
    thread_start=True,
    thread_resume=True,
    turn_steer=True,
    interrupt=True,
    event_stream=True,
    parallel_sessions=True,
    approvals=True,
)


class PiHost:
    """Carries as many sessions as the caller opens."""

    is_alive = True

    def __init__(self, ask: HostAsk) -> None:
        self._ask = ask
        self._count = Count()
        self.facts = _facts(ask)

    @property
    def frames_in(self) -> int:
        return self._count.lines

    @asynccontextmanager
    async def open_session(self, ask: SessionAsk, tap: Tap) -> AsyncIterator[PiSession]:
        home = await anyio.to_thread.run_sync(lay_out, self._ask, ask)
        if home.is_moved:
            tap.say(StepTaken(step="kept session moved", detail={"to": str(ask.workspace)}))
        lean = Lean()
        session = PiSession(ask, tap, clock=self._ask.clock, fences=home.fences_fact, lean=lean, kept_in=home.kept_in)
        try:
            async with (
                open_talk(
                    home.argv,
                    ask=self._ask,
                    listener=session,
                    tap=tap,
                    count=self._count,
                    env=home.env,
                    cwd=ask.workspace,
                    fences=home.fences,
                    wrap_channel=partial(self._wrapped, lean),
                ) as talk,
                anyio.create_task_group() as tasks,
            ):
                try:
                    await session.start(talk, tasks)
                    if home.kept_in is not None and session.thread is not None:
                        kept.enter(sessions_of(self._ask), session.thread, home.kept_in)
                    yield session
                finally:
                    # Shielded so that a cancelled attempt still ends its turn; bounded by the session's deadlines.
                    with anyio.CancelScope(shield=True):
                        await session.close()
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise lone(group) from group

    def _wrapped(self, lean: Lean, channel: Channel) -> Channel:
        return LeanChannel(channel if self._ask.between is None else self._ask.between(channel), lean)


@asynccontextmanager
async def open_host(ask: HostAsk, tap: Tap) -> AsyncIterator[PiHost]:
    if ask.profile is Profile.MINE:
        raise InputError("spec.unsupported", "pi is run with a home of its own only, not with yours", key="profile")
    yield PiHost(ask)


def _facts(ask: HostAsk) -> dict[str, Fact]:
    return {
        "identity": identity_fact(ask.program),
        "version": Fact(value=ask.program.version, authority=Authority.REPORTED, source="package.json"),
        "capability": Fact(value=msgspec.to_builtins(CLAIMS), authority=Authority.DECLARED, source="claims"),
        "transport": Fact(value=TRANSPORT, authority=Authority.OBSERVED, source="how the process is started"),
        "containment": ask.containment.fact(),
    }
