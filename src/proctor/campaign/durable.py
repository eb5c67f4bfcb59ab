"""Syncs of the disk, one at a time, each shared by all tasks that asked before it began."""

from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from proctor.errors import MachineError
from proctor.evidence.sync import GATHER_S, Sync

# A disk may be slow, or busy with other work. One that takes longer than this is taken as failed.
PATIENCE_S = 300.0


@dataclass(slots=True)
class _Round:
    """One sync: the tasks that wait for it, and its result."""

    is_asked: anyio.Event = field(default_factory=anyio.Event)
    is_over: anyio.Event = field(default_factory=anyio.Event)
    is_durable: bool = False
    error: MachineError | None = None


class SharedSync:
    """Shares one sync among many callers. `run` must be running in a task, or `make_durable` does not return."""

    def __init__(self, sync: Sync) -> None:
        self._sync = sync
        self._next = _Round()
        self._life = anyio.CancelScope()

    async def run(self) -> None:
        """Sync when asked, until `close`."""
        round_ = self._next
        try:
            with self._life:
                while True:
                    await round_.is_asked.wait()
                    await anyio.sleep(GATHER_S)
                    # Data written from here on may miss this sync, so later callers wait for the next one.
                    self._next = _Round()
                    try:
                        await anyio.to_thread.run_sync(self._sync)
                        round_.is_durable = True
                    except MachineError as error:
                        round_.error = error
                    round_.is_over.set()
                    round_ = self._next
        finally:
            # Release those who wait for the next round as well: they get an error.
            round_.is_over.set()
            self._next.is_over.set()

    def close(self) -> None:
        self._life.cancel()

    async def make_durable(self) -> None:
        """Return when everything written before the call survives a power cut. Raises MachineError if it may not."""
        round_ = self._next
        round_.is_asked.set()
        with anyio.move_on_after(PATIENCE_S):
            await round_.is_over.wait()
        if not round_.is_over.is_set():
            raise MachineError("machine.unwritable", f"the disk was not synced within {PATIENCE_S:g} s")
        if not round_.is_durable:
            raise round_.error or MachineError("machine.unwritable", "the run ended before the disk was synced")
