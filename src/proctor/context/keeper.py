"""Keeps the turns of one sitting: folds its events, and writes each turn to the session's store when it is over."""

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from msgspec.structs import replace

from proctor.clock import Clock
from proctor.context.change_session import fork_kept
from proctor.context.kept_session import KeptSession, fold_of
from proctor.context.model import RecordedTurn, SessionSettings, SessionTurn, Sitting
from proctor.context.store import read_store, refusing_damage
from proctor.errors import ProctorError
from proctor.event.model import Event, TurnAsked
from proctor.ids import SessionKey

T = TypeVar("T")


class SessionKeeper:
    """The sitting of a session that is kept. Events are fed as they are recorded; the store is written in threads."""

    def __init__(self, kept: KeptSession, sitting: Sitting, *, first_turn: int) -> None:
        self.last_turn: int | None = None
        """Number of the sitting's last turn in the session. None before the first."""
        self.problem: ProctorError | None = None
        """Why a turn that is over is not stored yet. None if all are. The next opening stores it from the record."""
        self._kept = kept
        self._sitting = sitting
        self._next_turn = first_turn
        self._fold = fold_of(sitting)
        self._over: list[RecordedTurn] = []
        self._is_reset = False
        self._lock = anyio.Lock()

    def feed(self, event: Event) -> None:
        """Take a recorded event."""
        turn = self._fold.feed(event)
        if turn is not None:
            self._over.append(turn)
        if isinstance(event, TurnAsked) or (turn is not None and turn.kind == "import"):
            self.last_turn = self._next_turn
            self._next_turn += 1

    async def begin(self, settings: SessionSettings) -> None:
        """Store that the sitting has begun, and how it was opened. Raises ProctorError if that cannot be stored."""

        def write() -> None:
            store = self._kept.store
            setup = replace(store.setup, settings=settings)
            store.begin_sitting(self._sitting)
            store.write_setup(setup)

        await self._locked(write)

    async def admit(self) -> None:
        """Store the turn that is about to be requested from the agent. Raises ProctorError if it cannot be stored."""
        turn = self._fold.open_turn

        def write() -> None:
            self._store_over()
            if turn is not None:
                self._kept.store.admit(turn, sitting=self._sitting)

        await self._locked(write)

    async def settle(self) -> None:
        """Store the turns that are over. Raises no error: a failure is kept as `problem`."""
        try:
            await self._locked(self._store_over)
        except ProctorError as error:
            self.problem = error
        else:
            self.problem = None

    async def close(self) -> None:
        """Store the last turns, then that the sitting is over, unless a turn could not be stored. Raises no error."""
        if (turn := self._fold.finish()) is not None:
            self._over.append(turn)
        await self.settle()
        if self.problem is None:
            try:
                await self._locked(lambda: self._kept.store.close_sitting(self._sitting))
            except ProctorError as error:
                self.problem = error

    @property
    def key(self) -> SessionKey:
        return self._kept.header.id

    def turns(self) -> tuple[SessionTurn, ...]:
        """Return the turns of the session, oldest first."""
        # On another connection: a thread may be writing.
        with read_store(self._kept.paths.store) as store:
            return store.turns()

    async def reset(self) -> None:
        """Begin a new history, and forget the native thread. The sitting is then over: no turn may follow."""

        def write() -> None:
            self._store_over()
            self._kept.store.reset(ending=self._sitting)
            self._is_reset = True

        await self._locked(write)

    async def fork(self, new_key: str, *, clock: Clock) -> None:
        """Copy the session under another id. No turn is running."""
        await self._locked(lambda: fork_kept(self._kept, new_key, clock=clock))

    def _store_over(self) -> None:
        while self._over:
            self._kept.store.settle(self._over[0], sitting=self._sitting)
            del self._over[0]
        # A reset has forgotten the thread, which this sitting still holds until it is closed.
        if not self._is_reset:
            self._kept.bind_thread(self._sitting, self._fold)

    async def _locked(self, work: Callable[[], T]) -> T:
        def guarded() -> T:
            with refusing_damage(self._kept.paths.store):
                return work()

        async with self._lock:
            return await anyio.to_thread.run_sync(guarded)
