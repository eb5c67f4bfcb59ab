"""The agent processes of a run: one per shared flow, or one per attempt, each opened and closed in its own task."""

import math
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from proctor.attempt.model import Lease
from proctor.errors import DeadlineError, HangupError, ProctorError, unwrap_single
from proctor.ids import ProcessId
from proctor.spec.choices import Isolation

OpenHost = Callable[[ProcessId], AbstractAsyncContextManager[Lease]]
OnGone = Callable[[ProcessId, ProctorError | None], None]
"""Receives each process that has ended, and why it failed to start; None if it started or was stopped before."""

START_S = 60.0
CLOSE_S = 30.0


@dataclass(slots=True)
class _Slot:
    """One process, with a count of its users."""

    process: ProcessId
    users: int = 0
    lease: Lease | None = None
    error: ProctorError | None = None
    ready: anyio.Event = field(default_factory=anyio.Event)
    retire: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)
    # Shielded so that a cancelled run leaves sealed records: a process ends only when `stop` is called.
    opening: anyio.CancelScope = field(default_factory=lambda: anyio.CancelScope(shield=True))

    @property
    def is_usable(self) -> bool:
        is_up = self.lease is not None and self.lease.host.is_alive and self.lease.failure() is None
        return not self.retire.is_set() and (is_up or not self.ready.is_set())

    def stop(self) -> None:
        """End the process; if it is still starting, cancel the start."""
        self.retire.set()
        if self.lease is None:
            self.opening.cancel()


class HostPool:
    """Leases places in agent processes. A process that died or does not answer is replaced on the next lease."""

    def __init__(self, tasks: TaskGroup, *, new_id: Callable[[], ProcessId], on_gone: OnGone | None = None) -> None:
        self._tasks = tasks
        self._new_id = new_id
        self._on_gone = on_gone
        self._shared: dict[Hashable, _Slot] = {}
        self.failure: ProctorError | None = None
        """Why the record of a process that had started could not be closed; None if all were."""

    @asynccontextmanager
    async def lease(self, sharing_key: Hashable, isolation: Isolation, open_host: OpenHost) -> AsyncIterator[Lease]:
        """Lease a place in a process. With shared isolation, callers with the same `sharing_key` share one process."""
        slot = self._slot(sharing_key, isolation, open_host)
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
            # A process for a single attempt is not in `_shared`; nor is one that was replaced, even if it recovered.
            is_known = self._shared.get(sharing_key) is slot
            if not slot.users and not (is_known and slot.is_usable):
                slot.stop()
                # Shielded so that nothing of this attempt still runs when its workspace is examined.
                with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                    await slot.gone.wait()

    def _slot(self, sharing_key: Hashable, isolation: Isolation, open_host: OpenHost) -> _Slot:
        old = self._shared.get(sharing_key) if isolation is Isolation.SHARED else None
        if old is not None and old.is_usable:
            return old
        if old is not None and not old.users:
            old.stop()
        slot = _Slot(self._new_id())
        self._tasks.start_soon(self._serve, slot, open_host)
        self._tasks.start_soon(self._stop_when_cancelled, slot)
        if isolation is Isolation.SHARED:
            self._shared[sharing_key] = slot
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
            if self._on_gone is not None:
                has_failed = slot.lease is None and not slot.retire.is_set()
                self._on_gone(slot.process, slot.error if has_failed else None)
            slot.ready.set()
            slot.gone.set()

    async def _stop_when_cancelled(self, slot: _Slot) -> None:
        """Stop the process as soon as the run is cancelled, even if it is in use."""
        try:
            await slot.gone.wait()
        finally:
            slot.stop()

    def retire_all(self) -> None:
        for slot in self._shared.values():
            slot.stop()
