"""Signals while a session is open: the first ends the running turn as cancelled, a further one cuts everything off."""

import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import anyio
import anyio.abc

from proctor.api import Session
from proctor.errors import ProctorError

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """What signals do. Before the session is open they end the command."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.is_turn_interrupted = False
        """Whether the last turn was interrupted."""
        self.is_end_requested = False
        """Whether the user wants to end the conversation, not only a turn."""
        self._tasks = tasks
        self._live: Session | None = None
        self._idle: anyio.CancelScope | None = None
        self._is_closing = False

    @contextmanager
    def in_turn(self, live: Session) -> Iterator[None]:
        """Let the first signal end the turn that runs in this block. Afterwards, none ends the command."""
        self._live, self.is_turn_interrupted = live, False
        try:
            yield
        finally:
            self._live, self._is_closing = None, True

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Let a signal end this block, and with it the conversation."""
        with anyio.CancelScope() as self._idle:
            yield
        self._idle = None

    async def listen(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        # A signal that is ignored was ignored from the start, for example by nohup.
        handled = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        with anyio.open_signal_receiver(*handled) as signals:
            task_status.started()
            async for number in signals:
                self._handle(number)

    def _handle(self, number: signal.Signals) -> None:
        # Ctrl-C ends only the turn; the other signals ask the process to end.
        self.is_end_requested = self.is_end_requested or number != signal.SIGINT or self._live is None
        if self._idle is not None:
            self._idle.cancel()
        elif self._live is not None and not self.is_turn_interrupted:
            self.is_turn_interrupted = True
            self._tasks.start_soon(self._interrupt, self._live)
        elif self._live is not None or not self._is_closing:
            self._tasks.cancel_scope.cancel()

    async def _interrupt(self, live: Session) -> None:
        # Who waits for the turn gets the error that broke its record.
        with suppress(ProctorError):
            await live.interrupt()


def run_interruptible(work: Callable[[Interrupts], Awaitable[T]]) -> T:
    """Run an async function that opens a session. Raises KeyboardInterrupt if it was cut off."""

    async def main() -> list[T]:
        results: list[T] = []
        async with anyio.create_task_group() as tasks:
            interrupts = Interrupts(tasks)
            await tasks.start(interrupts.listen)
            results.append(await work(interrupts))
            tasks.cancel_scope.cancel()
        return results

    match anyio.run(main):
        case [result]:
            return result
        case _:
            raise KeyboardInterrupt
