"""The native thread of a sitting with a context engine: opened when a turn needs it, and left for another one."""

from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup, TaskStatus

from proctor.attempt.supervision import Supervision
from proctor.attempt.turn import TEARDOWN_S, open_session
from proctor.context.port import ThreadOpening
from proctor.errors import ProctorError
from proctor.event.row import ThreadDropped
from proctor.runtime.base import Session


@dataclass(slots=True, kw_only=True)
class _OpenThread:
    session: Session | None = None
    leave: anyio.Event = field(default_factory=anyio.Event)
    is_closed: anyio.Event = field(default_factory=anyio.Event)


class ThreadSlot:
    """Opens one native thread at a time, each in a separate task: a turn that opens one may be cancelled."""

    def __init__(self, supervision: Supervision, tasks: TaskGroup) -> None:
        self.failure: ProctorError | None = None
        """Why a thread could not be closed as it should. None if all could."""
        self._supervision = supervision
        self._tasks = tasks
        self._open: _OpenThread | None = None
        self._opened = 0

    async def open(self, opening: ThreadOpening | None) -> Session:
        """Leave the thread that is open, if any, and open one: that of the request if `opening` is None.

        Raises what the opening raises.
        """
        await self.close()
        if self._opened and opening is not None:
            lease = self._supervision.lease
            process = None if lease is None else lease.process
            self._supervision.tap.record(ThreadDropped(why=opening.decision.reason, process=process))
        self._opened += 1
        thread = _OpenThread()
        session: Session = await self._tasks.start(partial(self._serve, thread, opening))
        self._open = thread
        return session

    async def close(self) -> None:
        """Close the thread that is open, if any, within a bounded time."""
        thread, self._open = self._open, None
        if thread is not None:
            thread.leave.set()
            with anyio.CancelScope(shield=True), anyio.move_on_after(2 * TEARDOWN_S):
                await thread.is_closed.wait()
            self._supervision.session = None

    async def import_history(self) -> None:
        """Open the thread of the request, and read its history into the record. Leaves it open."""
        session = await self.open(None)
        try:
            await session.read_history()
        except BaseException:
            await self.close()
            raise

    async def _serve(
        self, thread: _OpenThread, opening: ThreadOpening | None, *, task_status: TaskStatus[Session]
    ) -> None:
        try:
            async with open_session(self._supervision, opening) as session:
                thread.session = session
                task_status.started(session)
                await thread.leave.wait()
        except ProctorError as error:
            if thread.session is None:
                raise
            # The turn that runs meets the same failure; it must not end the other tasks.
            self.failure = self.failure or error
        finally:
            thread.is_closed.set()
