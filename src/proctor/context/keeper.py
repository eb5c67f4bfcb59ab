"""Keeps the turns of one sitting: folds its events, and writes each turn to the session's store when it is over."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import anyio
import anyio.to_thread
from msgspec.structs import replace

from proctor.clock import Clock
from proctor.context.change_session import fork_kept
from proctor.context.check_assembled import replacement_problem
from proctor.context.history import History
from proctor.context.kept_session import KeptSession
from proctor.context.model import Binding, RecordedTurn, SessionSettings, SessionTurn, Sitting, TurnState
from proctor.context.store import QueuedTurn, read_store, refusing_damage
from proctor.context.stored_history import open_history
from proctor.context.thread_fold import SittingFold
from proctor.errors import EngineError, InputError, ProctorError
from proctor.event.message import Message
from proctor.event.model import Event, TurnAsked
from proctor.ids import EntryId, SessionKey
from proctor.workspace.remove import remove

T = TypeVar("T")


class SessionKeeper:
    """The sitting of a session that is kept. Events are fed as they are recorded; the store is written in threads."""

    def __init__(self, kept: KeptSession, sitting: Sitting, *, first_turn: int) -> None:
        self.last_turn: int | None = None
        """Number of the sitting's last turn in the session. None before the first."""
        self.problem: ProctorError | None = None
        """Why a turn that is over is not stored yet. None if all are. The next opening stores it from the record."""
        self.last_over: RecordedTurn | None = None
        """The turn that ended last. None before the first."""
        self.sitting = sitting
        self._kept = kept
        self._next_turn = first_turn
        self._fold = SittingFold(sitting, before=kept.store.binding[0])
        self._over: list[RecordedTurn] = []
        self._is_reset = False
        self._lock = anyio.Lock()

    def feed(self, event: Event) -> None:
        """Take a recorded event."""
        turn = self._fold.feed(event)
        if turn is not None:
            self._over.append(turn)
            self.last_over = turn
        if isinstance(event, TurnAsked) or (turn is not None and turn.kind == "import"):
            self.last_turn = self._next_turn
            self._next_turn += 1

    async def begin(self, settings: SessionSettings) -> None:
        """Store that the sitting has begun, and how it was opened. Raises ProctorError if that cannot be stored."""

        def write() -> None:
            store = self._kept.store
            setup = replace(store.setup, settings=settings, lost=())
            store.begin_sitting(self.sitting)
            store.write_setup(setup)

        await self._locked(write)

    async def admit(self) -> None:
        """Store the turn that is about to be requested from the agent. Raises ProctorError if it cannot be stored."""
        turn = self._fold.mirror.open_turn

        def write() -> None:
            self._store_over()
            if turn is not None:
                self._kept.store.admit(turn, sitting=self.sitting)

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
                await self._locked(self._close_sitting)
            except ProctorError as error:
                self.problem = error

    def _close_sitting(self) -> None:
        if self.sitting.is_ephemeral:
            self._kept.forget_thread()
        self._kept.store.close_sitting(self.sitting)

    @property
    def key(self) -> SessionKey:
        return self._kept.header.id

    @property
    def binding(self) -> Binding | None:
        """The native thread, as far as it is recorded."""
        return self._fold.binding

    @property
    def open_turn(self) -> RecordedTurn | None:
        """The turn that runs, as far as it is recorded. None between turns."""
        return self._fold.mirror.open_turn

    def turns(self) -> tuple[SessionTurn, ...]:
        """Return the turns of the session, oldest first."""
        # On another connection: a thread may be writing.
        with read_store(self._kept.paths.store) as store:
            return store.turns()

    @contextmanager
    def history(self) -> Iterator[History]:
        """Open the history before the turn that runs. Raises ProctorError if it cannot be read."""
        after = self._kept.store.setup.history_after
        with open_history(self._kept.paths.store, after_turn=after) as history:
            yield history

    async def held_of(self, ids: Iterable[EntryId]) -> frozenset[EntryId]:
        """Return which of these entries the native thread holds."""
        wanted = tuple(ids)

        def read() -> frozenset[EntryId]:
            # What was given or compacted in this turn is not stored before.
            self._bind()
            return self._kept.store.held_of(wanted)

        return await self._locked(read)

    async def uncommitted(self, *, most: int) -> tuple[tuple[QueuedTurn, tuple[Message, ...]], ...]:
        """Return completed turns that the engine does not have yet, oldest first, with their entries."""

        def read() -> tuple[tuple[QueuedTurn, tuple[Message, ...]], ...]:
            store = self._kept.store
            return tuple((turn, tuple(store.messages(turn=turn.n))) for turn in store.uncommitted(most=most))

        return await self._locked(read)

    async def note_commit(self, n: int, state: TurnState, *, failures: int = 0, detail: str | None = None) -> None:
        """Store how far the commit of a completed turn has come."""
        await self._locked(lambda: self._kept.store.note_commit(n, state, failures=failures, detail=detail))

    async def replace_entries(self, replacements: Mapping[EntryId, Message]) -> int:
        """Store what the engine sees in place of entries. Returns how many there are.

        Raises InputError while a turn runs, and EngineError for a replacement that cannot take the place of its entry.
        """

        def write() -> int:
            # A maintenance in the background may reach into the next turn, which must not change under the engine.
            if self.open_turn is not None:
                raise InputError("session.busy", "entries cannot be replaced while a turn runs")
            return self._kept.store.replace_entries(replacements)

        if (problem := replacement_problem(replacements)) is not None:
            raise EngineError("engine.bad-result", problem)
        return await self._locked(write)

    def forget_thread(self) -> None:
        """Note that the session has no native thread. Stored when the sitting is closed."""
        self._fold.forget_thread()

    async def reset(self, *, engine: str | None) -> None:
        """Begin a new history, and forget the native thread. The sitting is then over: no turn may follow.

        The state of every engine but `engine` is removed.
        """

        def write() -> None:
            self._store_over()
            self._kept.store.reset(ending=self.sitting)
            self._is_reset = True
            # The state of the engine in use is its own to remove.
            for folder in self._kept.paths.engines.glob("*"):
                if folder.name != engine:
                    remove(folder)
            remove(self._kept.paths.old_engines)

        await self._locked(write)

    async def fork(self, new_key: str, *, clock: Clock) -> None:
        """Copy the session under another id. No turn is running."""
        await self._locked(lambda: fork_kept(self._kept, new_key, clock=clock))

    def _store_over(self) -> None:
        while self._over:
            self._kept.store.settle(self._over[0], sitting=self.sitting)
            del self._over[0]
        self._bind()

    def _bind(self) -> None:
        # A reset has forgotten the thread, which this sitting still holds until it is closed.
        if not self._is_reset:
            self._kept.bind_thread(self._fold)

    async def _locked(self, work: Callable[[], T]) -> T:
        def guarded() -> T:
            with refusing_damage(self._kept.paths.store):
                return work()

        async with self._lock:
            return await anyio.to_thread.run_sync(guarded)
