"""The shared part of all pi sessions. Each session has its own process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio

from proctor.errors import InputError, unwrap_single
from proctor.event.row import StepTaken
from proctor.fact import Authority, Fact
from proctor.runtime.base import HostRequest, SessionRequest, Tap
from proctor.runtime.capability import Capabilities
from proctor.runtime.defaults import host_facts
from proctor.runtime.line_process import LineCount, open_line_process
from proctor.spec.choices import Profile
from proctor.transport.channel import Channel
from proctor_pi import kept
from proctor_pi.home import lay_out, sessions_of
from proctor_pi.lean import Lean, LeanChannel
from proctor_pi.session import PiSession

TRANSPORT: Final = "stdio"
CAPABILITIES: Final = Capabilities(
    thread_start=True,
    thread_resume=True,
    turn_steer=True,
    interrupt=True,
    event_stream=True,
    parallel_sessions=True,
    approvals=True,
)


class PiHost:
    """The host of pi sessions. It starts no process itself."""

    is_alive = True

    def __init__(self, request: HostRequest) -> None:
        self._request = request
        self._count = LineCount()
        self.facts = _facts(request)

    @property
    def frames_in(self) -> int:
        return self._count.lines

    @asynccontextmanager
    async def open_session(self, request: SessionRequest, tap: Tap) -> AsyncIterator[PiSession]:
        home = await anyio.to_thread.run_sync(lay_out, self._request, request)
        if home.is_moved:
            tap.record(StepTaken(step="kept session moved", detail={"to": str(request.workspace)}))
        lean = Lean()
        session = PiSession(
            request, tap, clock=self._request.clock, fences=home.fences_fact, lean=lean, kept_in=home.kept_in
        )
        try:
            async with (
                open_line_process(
                    home.argv,
                    request=self._request,
                    listener=session,
                    tap=tap,
                    count=self._count,
                    env=home.env,
                    cwd=request.workspace,
                    fences=home.fences,
                    wrap_channel=partial(self._wrapped, lean),
                ) as line_process,
                anyio.create_task_group() as tasks,
            ):
                try:
                    await session.start(line_process, tasks)
                    if home.kept_in is not None and session.thread is not None:
                        kept.enter(sessions_of(self._request), session.thread, home.kept_in)
                    yield session
                finally:
                    # Shielded so that a cancelled attempt still ends its turn; bounded by the session's deadlines.
                    with anyio.CancelScope(shield=True):
                        await session.close()
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise unwrap_single(group) from group

    def _wrapped(self, lean: Lean, channel: Channel) -> Channel:
        return LeanChannel(channel if self._request.wrap_channel is None else self._request.wrap_channel(channel), lean)


@asynccontextmanager
async def open_host(request: HostRequest, tap: Tap) -> AsyncIterator[PiHost]:
    if request.profile is Profile.MINE:
        raise InputError(
            "spec.unsupported", "pi runs only with a separate home; `profile: mine` is not supported", key="profile"
        )
    yield PiHost(request)


def _facts(request: HostRequest) -> dict[str, Fact]:
    version = Fact(value=request.program.version, authority=Authority.REPORTED, source="package.json")
    return {**host_facts(request, CAPABILITIES, transport=TRANSPORT), "version": version}
