"""The turns of a sitting that is kept: each is stored and, with a context engine, goes through its lifecycle."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from proctor.attempt.model import KeptSitting
from proctor.attempt.supervision import Supervision
from proctor.attempt.threads import ThreadSlot
from proctor.attempt.turn import take_turn
from proctor.context.lifecycle import ContextLifecycle
from proctor.context.model import TurnContext
from proctor.context.port import ThreadOpening
from proctor.event.model import CompactionBegan, CompactionEnded, Event, TurnAsked, TurnBegan
from proctor.event.outcome import Ending
from proctor.event.row import SupervisorRow
from proctor.event.usage import Usage, UsageFold
from proctor.ids import RuntimeId
from proctor.runtime.base import Session
from proctor.runtime.capability import Capabilities


def _do_nothing() -> None:
    """Default callback."""


class KeptTurns:
    """The turns of one sitting. The caller records what begins and ends a turn: `TurnWanted` and `TurnClosed`.

    With a context engine, the turns open native threads as they need them, within `open_threads`.
    """

    def __init__(
        self, supervision: Supervision, sitting: KeptSitting, *, thread_opened: Callable[[], None] = _do_nothing
    ) -> None:
        """`thread_opened` is called when a turn has opened a native thread."""
        self.keeper = sitting.keeper
        self.lifecycle: ContextLifecycle | None = None
        """What a turn does with the context engine. None if the sitting has none."""
        self._supervision = supervision
        self._port = _AgentOfSitting(supervision, thread_opened)
        if sitting.engine is not None:
            self.lifecycle = ContextLifecycle(sitting.engine, keeper=self.keeper, port=self._port)

    def feed(self, event: Event) -> None:
        """Take a recorded event."""
        self._port.feed(event)
        if self.lifecycle is not None and isinstance(event, CompactionBegan | CompactionEnded):
            self.lifecycle.note_compaction(event)
        self.keeper.feed(event)
        self._supervision.last_turn = self.keeper.last_turn

    async def take(self, start: Callable[[], Awaitable[None]]) -> None:
        """Store that the turn which was recorded as wanted is about to be asked, and take it as `take_turn` does."""
        await self.keeper.admit()
        await take_turn(self._supervision, start)

    async def ask(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        """Ask the turn. Returns when the agent has ended it. Raises as `ContextLifecycle.run_turn`."""
        if self.lifecycle is not None:
            await self.lifecycle.run_turn(prompt, output_schema=output_schema)
        elif (session := self._supervision.session) is not None:
            await session.turn(prompt, output_schema=output_schema)

    async def settle(self) -> TurnContext | None:
        """Store the turn that was recorded as closed, and commit it. Raises no error.

        Returns what the context engine did for it. None if there is no engine.
        """
        await self.keeper.settle()
        if self.lifecycle is None:
            return None
        await self.lifecycle.finalize_turn()
        return self.lifecycle.context_of(self.keeper.last_over)

    @asynccontextmanager
    async def open_threads(self) -> AsyncIterator[ThreadSlot]:
        """Let the turns open native threads, and the engine work beside them.

        At the end, what the engine still does is ended, and the open thread is closed; both are bounded, and done if
        the caller is cancelled, too. Raises ProctorError if a thread could not be closed as it should.
        """
        assert self.lifecycle is not None, "the sitting has a context engine"
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks, anyio.create_task_group() as work:
            threads = ThreadSlot(self._supervision, tasks)
            self._port.threads, self._port.tasks = threads, work
            try:
                yield threads
            except Exception as error:
                # Not raised inside the task groups, which would wrap the caller's own error in a group.
                failure = error
            finally:
                with anyio.CancelScope(shield=True):
                    await self.lifecycle.close()
                    await threads.close()
                work.cancel_scope.cancel()
        if (problem := failure or threads.failure) is not None:
            raise problem


class _AgentOfSitting:
    """The agent of a sitting, as an `AgentPort` for the lifecycle of its turns."""

    def __init__(self, supervision: Supervision, thread_opened: Callable[[], None]) -> None:
        self.threads: ThreadSlot | None = None
        self.tasks: TaskGroup | None = None
        self.has_turn_begun = False
        self._supervision = supervision
        self._thread_opened = thread_opened
        self._usage = UsageFold()

    def feed(self, event: Event) -> None:
        """Take a recorded event."""
        self._usage.feed(event)
        if isinstance(event, TurnAsked | TurnBegan):
            self.has_turn_begun = isinstance(event, TurnBegan)

    @property
    def runtime_id(self) -> RuntimeId:
        return self._supervision.request.runtime.id

    @property
    def capabilities(self) -> Capabilities:
        return self._supervision.request.runtime.capabilities

    @property
    def session(self) -> Session | None:
        return self._supervision.session if self._supervision.is_agent_alive else None

    @property
    def ending(self) -> Ending:
        return self._supervision.recording.derivation.ending

    @property
    def usage(self) -> Usage | None:
        return self._usage.last_turn()

    def record(self, row: SupervisorRow) -> None:
        self._supervision.tap.record(row)

    async def open_thread(self, opening: ThreadOpening) -> Session:
        assert self.threads is not None, "the sitting is open"
        session = await self.threads.open(opening)
        self._thread_opened()
        return session

    def start_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        assert self.tasks is not None, "the sitting is open"
        self.tasks.start_soon(work)
