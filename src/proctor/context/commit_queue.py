"""Commits completed turns to the context engine: each once, oldest first, and again until it has them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal

from proctor.context.context_meter import ContextMeter
from proctor.context.engine import EngineContext, TurnCommit
from proctor.context.engine_use import EngineUse
from proctor.context.keeper import SessionKeeper
from proctor.context.model import RecordedTurn, TurnState
from proctor.context.port import AgentPort
from proctor.context.store import QueuedTurn
from proctor.errors import EngineError, ProctorError
from proctor.event.message import Message
from proctor.event.row import CommitMade, CommitStatus
from proctor.ids import EntryId

MOST_COMMIT_FAILURES: Final = 3
"""After so many failed commits a turn is blocked."""

MOST_COMMITS: Final = 16
"""So many queued turns are committed at once."""


class CommitQueue:
    """The turns of a session that its context engine lacks."""

    def __init__(
        self,
        use: EngineUse,
        *,
        keeper: SessionKeeper,
        port: AgentPort,
        meter: ContextMeter,
        context: Callable[[], EngineContext],
    ) -> None:
        self._use = use
        self._keeper = keeper
        self._port = port
        self._meter = meter
        self._context = context
        self._blocked: EngineError | None = None
        self._last: CommitMade | None = None

    def status_of(self, turn: EntryId) -> CommitMade | None:
        """Return what was recorded last of this turn's commit. None if nothing was."""
        return self._last if self._last is not None and self._last.turn == turn else None

    def note_bootstrap(self) -> None:
        """Note that the engine was given the whole history, and with it every turn that it refused before."""
        self._blocked = None

    async def commit(self) -> EngineError | None:
        """Commit the turns that wait. Returns why the engine does not have all of them, or lacks a blocked one."""
        problem: EngineError | None = None
        while problem is None and (waiting := await self._keeper.uncommitted(most=MOST_COMMITS)):
            problem = await self._commit_all(waiting)
        return problem or self._blocked

    async def _commit_all(self, waiting: Sequence[tuple[QueuedTurn, tuple[Message, ...]]]) -> EngineError | None:
        """Commit these turns up to the first that must wait. Returns why one of them failed."""
        problem: EngineError | None = None
        for queued, messages in waiting:
            if queued.engine != self._use.info.id:
                detail = f"the session is opened with the engine {self._use.info.id}"
                await self._note(queued, TurnState.BLOCKED, "blocked", detail=detail)
                continue
            problem = await self._try(queued.id, messages)
            if problem is None:
                await self._note(queued, TurnState.ACKNOWLEDGED, "committed")
                continue
            # A quarantined engine was not called.
            failures = queued.failures + (problem.code != "engine.quarantined")
            if failures < MOST_COMMIT_FAILURES:
                await self._note(queued, TurnState.READY, "queued", failures=failures, detail=problem.what)
                break
            await self._note(queued, TurnState.BLOCKED, "blocked", failures=failures, detail=problem.what)
            self._blocked = EngineError(problem.code, f"the engine lacks the turn {queued.id}: {problem.what}")
        return problem

    async def commit_unstored(self, turn: RecordedTurn) -> EngineError | None:
        """Commit a turn that the mirror could not take: the engine has it now, and the repair is then a duplicate."""
        problem = await self._try(turn.id, turn.messages)
        status: Literal["queued", "committed"] = "committed" if problem is None else "queued"
        detail = None if problem is None else problem.what
        self._record(CommitMade(turn=turn.id, status=status, source="fallback", detail=detail))
        return problem

    def skip(self, turn: RecordedTurn, *, why: str) -> None:
        """Record that a turn is not committed."""
        self._record(CommitMade(turn=turn.id, status="none", detail=why))

    def defer(self, turn: RecordedTurn, problem: ProctorError | None) -> None:
        """Record that a turn waits behind an earlier one, unless something else was recorded of it."""
        if self.status_of(turn.id) is None:
            detail = "an earlier turn waits" if problem is None else f"an earlier turn waits: {problem.what}"
            self._record(CommitMade(turn=turn.id, status="queued", detail=detail))

    async def _try(self, key: EntryId, messages: tuple[Message, ...]) -> EngineError | None:
        newest = self._keeper.last_over
        turn = TurnCommit(
            key=key,
            messages=messages,
            model=self._use.model,
            budget=self._meter.budget,
            # What is known is that of the last turn.
            usage=self._port.usage if newest is not None and newest.id == key else None,
        )
        context = self._context()
        try:
            if self._use.info.commits == "exactly-once":
                await self._use.guard.commit_turn(context, turn)
            else:
                with self._keeper.history() as history:
                    await self._use.guard.commit_turn(replace(context, history=history), turn)
        except EngineError as error:
            return error
        except ProctorError as error:
            return EngineError("engine.failed", f"commit_turn was not called: the history cannot be read ({error})")
        return None

    async def _note(
        self,
        queued: QueuedTurn,
        state: TurnState,
        status: CommitStatus,
        *,
        failures: int = 0,
        detail: str | None = None,
    ) -> None:
        await self._keeper.note_commit(queued.n, state, failures=failures, detail=detail)
        self._record(CommitMade(turn=queued.id, status=status, detail=detail))

    def _record(self, row: CommitMade) -> None:
        self._last = row
        self._port.record(row)
