"""The agent processes of a run: one for each shared flow, or one an attempt, each opened and closed in its own task."""

import math
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from proctor.attempt.model import Lease
from proctor.errors import DeadlineError, HangupError, ProctorError, unwrap_single
from proctor.ids import ProcessId
from proctor.spec.model import Isolation

OpenHost = Callable[[ProcessId], AbstractAsyncContextManager[Lease]]

START_S = 60.0
CLOSE_S = 30.0


@dataclass(slots=True)
class _Slot:
    """One process and who uses it."""

    process: ProcessId
    users: int = 0
    lease: Lease | None = None
    error: ProctorError | None = None
    ready: anyio.Event = field(default_factory=anyio.Event)
    retire: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)
    # Shielded so that a run that is cancelled leaves sealed records: a process ends when it is let go, and only then.
    opening: anyio.CancelScope = field(default_factory=lambda: anyio.CancelScope(shield=True))

    @property
    def is_usable(self) -> bool:
        is_up = self.lease is not None and self.lease.host.is_alive and self.lease.failure() is None
        return not self.retire.is_set() and (is_up or not self.ready.is_set())

    def let_go(self) -> None:
        """End it; one that is not up yet need not come up first."""
        self.retire.set()
        if self.lease is None:
            self.opening.cancel()


class HostPool:
    """Hands out places in processes. One that died or does not answer is replaced for the next one who asks."""

    def __init__(self, tasks: TaskGroup, *, new_id: Callable[[], ProcessId]) -> None:
        self._tasks = tasks
        self._new_id = new_id
        self._shared: dict[Hashable, _Slot] = {}
        self.failure: ProctorError | None = None
        """Why the record of a process that did start could not be closed, if so."""

    @asynccontextmanager
    async def lease(self, whose: Hashable, isolation: Isolation, open_host: OpenHost) -> AsyncIterator[Lease]:
        """`whose` is what those have in common who share a process."""
        slot = self._slot(whose, isolation, open_host)
        slot.users += 1
        try:
            await slot.ready.wait()
            if slot.error is not None:
                raise slot.error
            if slot.lease is None:
                raise HangupError("peer.hangup", "the agent's process ended before it was ready")
            yield slot.lease
        finally:
            slot.users -= 1
            # A process of its own attempt is in no book; nor is one that was replaced, though it may answer again.
            is_known = self._shared.get(whose) is slot
            if not slot.users and not (is_known and slot.is_usable):
                slot.let_go()
                # Shielded so that nothing of this attempt runs on while its workspace is looked at.
                with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                    await slot.gone.wait()

    def _slot(self, whose: Hashable, isolation: Isolation, open_host: OpenHost) -> _Slot:
        old = self._shared.get(whose) if isolation is Isolation.SHARED else None
        if old is not None and old.is_usable:
            return old
        if old is not None and not old.users:
            old.let_go()
        slot = _Slot(self._new_id())
        self._tasks.start_soon(self._serve, slot, open_host)
        self._tasks.start_soon(self._let_go_when_cancelled, slot)
        if isolation is Isolation.SHARED:
            self._shared[whose] = slot
        return slot

    async def _serve(self, slot: _Slot, open_host: OpenHost) -> None:
        try:
            with slot.opening as opening:
                opening.deadline = anyio.current_time() + START_S
                async with open_host(slot.process) as lease:
                    slot.lease = lease
                    opening.deadline = math.inf
                    slot.ready.set()
                    await slot.retire.wait()
            if slot.lease is None:
                slot.error = DeadlineError("peer.deadline", f"the agent's process was not ready within {START_S:g} s")
        except ProctorError as error:
            slot.error = error
        except BaseExceptionGroup as group:
            if not isinstance(only := unwrap_single(group), ProctorError):
                raise
            slot.error = only
        finally:
            if slot.lease is not None:
                self.failure = self.failure or slot.error
            slot.ready.set()
            slot.gone.set()

    async def _let_go_when_cancelled(self, slot: _Slot) -> None:
        """At once, whoever uses it: a run is cancelled by those who will not wait."""
        try:
            await slot.gone.wait()
        finally:
            slot.let_go()

    def retire_all(self) -> None:
        for slot in self._shared.values():
            slot.let_go()
