"""What the cases of the engine suite work on: the engine under test, in fresh folders, called as a session calls it."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from proctor.clock import SYSTEM_CLOCK
from proctor.context.budget import DEFAULT_WINDOW_TOKENS, Budget, WindowSource
from proctor.context.engine import (
    AssembleResult,
    CommitResult,
    CompactResult,
    ContextEngine,
    CreateEngine,
    EngineContext,
    EngineInfo,
    EngineSetup,
    ForgetReason,
    MaintainReason,
    TurnCommit,
)
from proctor.context.guard import CancelSignal, Deadlines, EngineHealth, GuardedEngine
from proctor.context.history import History, ListedHistory
from proctor.context.registry import create_checked
from proctor.errors import EngineError
from proctor.event.message import Message
from proctor.ids import SessionKey
from proctor.runtime.base import Tool
from proctor.testing.engines.conversations import Turn, messages_of, prompt_after
from proctor.testing.unproven import NotApplicableError

SUITE_DEADLINES: Final = Deadlines(call_s=10.0, maintain_s=20.0, compact_s=30.0)
"""Shorter than in a session: what the suite says is short too."""

TOKENS: Final = 20_000
"""The budget of the history, unless a case sets another one."""

_UNLIMITED: Final = 1_000_000
"""So many failures in a row that the suite never stops calling an engine."""


def budget_of(tokens: int) -> Budget:
    return Budget(
        window=DEFAULT_WINDOW_TOKENS,
        reserve=DEFAULT_WINDOW_TOKENS - tokens,
        history=tokens,
        source=WindowSource.CONFIG,
    )


def commit_of(turn: Turn, *, tokens: int = TOKENS) -> TurnCommit:
    return TurnCommit(key=turn[0].id, messages=turn, model=None, budget=budget_of(tokens), usage=None)


@dataclass(slots=True, kw_only=True)
class EngineSubject:
    """The engine under test."""

    create: CreateEngine
    options: Mapping[str, Any]
    folder: Path
    entry_point: str | None
    """`module:name` by which another process imports the function that creates the engine. None if it cannot."""
    engine_id: str | None
    """The id that the engine should have. None if any will do."""
    deadlines: Deadlines = SUITE_DEADLINES
    case: str = ""
    """Id of the case that runs."""
    hung: dict[str, str] = field(default_factory=dict)
    """The cases in which a method did not answer in time, by method. It is not called again."""
    _numbers: Iterator[int] = field(default_factory=count)

    def new_folder(self) -> Path:
        folder = self.folder / f"engine-{next(self._numbers)}"
        folder.mkdir()
        return folder

    def create_in(
        self, folder: Path, *, options: Mapping[str, Any] | None = None, session: str = "check"
    ) -> ContextEngine:
        """Create the engine for a session in this folder. Raises as `registry.engine_by_id` describes."""
        setup = EngineSetup(
            session=SessionKey(session), folder=folder, options=dict(self.options if options is None else options)
        )
        return create_checked(self.engine_id, self.create, setup)

    @asynccontextmanager
    async def engine(self, folder: Path | None = None, *, session: str = "check") -> AsyncIterator["EngineUnderTest"]:
        """Open the engine in a folder, a new one unless given, and close it. Raises as its methods do."""
        engine = self.create_in(folder or self.new_folder(), session=session)
        opened = EngineUnderTest(engine, session=SessionKey(session), subject=self)
        try:
            yield opened
        except BaseException:
            with suppress(EngineError, NotApplicableError):
                await opened.close()
            raise
        await opened.close()


class EngineUnderTest:
    """One object of the engine. Every method raises EngineError if the engine breaks its contract.

    After a method has once not answered in time, it raises NotApplicableError.
    """

    def __init__(self, engine: ContextEngine, *, session: SessionKey, subject: EngineSubject) -> None:
        health = EngineHealth(most_failures=_UNLIMITED)
        self.raw = engine
        self._guard = GuardedEngine(engine, clock=SYSTEM_CLOCK, health=health, deadlines=subject.deadlines)
        self._session = session
        self._subject = subject
        self._is_closed = False

    @property
    def info(self) -> EngineInfo:
        return self._guard.info

    def context(self, *, tokens: int = TOKENS) -> EngineContext:
        return EngineContext(
            session=self._session, model=None, tools=frozenset(), budget=budget_of(tokens), cancel=CancelSignal()
        )

    async def bootstrap(self, history: History) -> None:
        with self._calling("bootstrap"):
            await self._guard.bootstrap(self.context(), history)

    async def assemble(
        self, turns: Sequence[Turn], *, prompt: Message | None = None, tokens: int = TOKENS
    ) -> AssembleResult:
        """Return what the engine assembles for a prompt after these turns, checked as in a session."""
        with self._calling("assemble"):
            history = ListedHistory(messages_of(turns))
            return await self._guard.assemble(self.context(tokens=tokens), history, prompt or prompt_after(turns))

    async def commit(self, turn: Turn, *, after: Iterable[Turn] = (), tokens: int = TOKENS) -> CommitResult:
        """Commit a turn. `after` are those before it."""
        return await self.commit_turn(commit_of(turn, tokens=tokens), after=after)

    async def commit_turn(self, turn: TurnCommit, *, after: Iterable[Turn] = ()) -> CommitResult:
        with self._calling("commit_turn"):
            ctx = self.context()
            if self.info.commits == "at-least-once":
                ctx = replace(ctx, history=ListedHistory([*messages_of(after), *turn.messages]))
            return await self._guard.commit_turn(ctx, turn)

    async def commit_all(self, turns: Sequence[Turn]) -> None:
        for at, turn in enumerate(turns):
            await self.commit(turn, after=turns[:at])

    async def maintain(self, reason: MaintainReason) -> None:
        with self._calling("maintain"):
            await self._guard.maintain(self.context(), reason)

    async def compact(self, *, force: bool = True, tokens: int = TOKENS) -> CompactResult:
        with self._calling("compact"):
            ctx = self.context(tokens=tokens)
            return await self._guard.compact(ctx, force=force, target="threshold", focus=None)

    async def forget(self, reason: ForgetReason) -> None:
        with self._calling("forget"):
            await self._guard.forget(self.context(), reason)

    async def tools(self) -> tuple[Tool, ...]:
        with self._calling("tools"):
            return await self._guard.tools()

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            with self._calling("close"):
                await self._guard.close()

    @contextmanager
    def _calling(self, method: str) -> Iterator[None]:
        if (case := self._subject.hung.get(method)) is not None:
            raise NotApplicableError(f"`{method}` did not answer in time in the case {case}")
        try:
            yield
        except EngineError as error:
            if error.code == "engine.timeout":
                self._subject.hung[method] = self._subject.case
            raise
