"""Adapters for context engines that take in turns by another method than `commit_turn`.

Such an engine has `after_turn`, or `ingest_batch`, or `ingest`; the first of these that it has is used. They have no
key, so a turn can reach the engine a second time if Proctor is killed between the call and the receipt for it: the
engine's `info` then says `at-least-once`.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast

import anyio.to_thread
from msgspec.structs import replace

from proctor.context.budget import Budget
from proctor.context.engine import (
    CommitResult,
    ContextEngine,
    EngineContext,
    EngineInfo,
    ForgetReason,
    PromptCache,
    TurnCommit,
)
from proctor.context.history import History
from proctor.context.receipts import CommitReceipts
from proctor.event.message import Message
from proctor.event.usage import Usage

METHODS: Final = ("after_turn", "ingest_batch", "ingest")
"""The methods that an adapter can use, in the order of preference."""


class TakesSnapshots(Protocol):
    """The part of an engine that takes the whole history after each turn."""

    def after_turn(
        self,
        ctx: EngineContext,
        messages: Sequence[Message],
        *,
        pre_prompt_message_count: int,
        budget: Budget,
        usage: Usage | None,
        prompt_cache: PromptCache | None,
    ) -> Awaitable[None] | None:
        """Take in the history with a completed turn at its end.

        The turn begins at `messages[pre_prompt_message_count]`, its prompt.
        """


class TakesBatches(Protocol):
    """The part of an engine that takes the messages of a turn together."""

    def ingest_batch(self, ctx: EngineContext, messages: Sequence[Message]) -> Awaitable[None] | None:
        """Take in the messages of a completed turn."""


class TakesMessages(Protocol):
    """The part of an engine that takes messages one by one."""

    def ingest(self, ctx: EngineContext, message: Message) -> Awaitable[None] | None:
        """Take in one message of a completed turn. Called for each, in order."""


def adapt_engine(engine: Any, *, folder: Path) -> ContextEngine:
    """Return an engine with `commit_turn`: the engine itself if it has one, and otherwise its adapter.

    An engine that has none of the methods is returned as it is.
    """
    if hasattr(engine, "commit_turn"):
        return cast("ContextEngine", engine)
    method = next((name for name in METHODS if callable(getattr(engine, name, None))), None)
    if method is None:
        return cast("ContextEngine", engine)
    return cast("ContextEngine", _AdaptedEngine(engine, method=method, folder=folder))


class _AdaptedEngine:
    """An engine with a `commit_turn` that calls the method that it has. All other members are those of the engine."""

    def __init__(self, engine: Any, *, method: str, folder: Path) -> None:
        self._engine = engine
        self._method = method
        self._receipts = CommitReceipts(folder)
        take = getattr(engine, method)
        # The caller runs plain functions in a thread, and needs to see which kind this is.
        self.commit_turn = self._commit_async if inspect.iscoroutinefunction(take) else self._commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def info(self) -> EngineInfo:
        info: EngineInfo = self._engine.info
        return replace(info, commits="at-least-once")

    @property
    def forget(self) -> Callable[..., Awaitable[None] | None]:
        forget = self._engine.forget
        return self._forget_async(forget) if inspect.iscoroutinefunction(forget) else self._forget(forget)

    def find_damage(self) -> Any:
        """Return what is damaged in the receipts, or else by the engine, if that can check it."""
        if (damage := self._receipts.find_damage()) is not None:
            return damage
        find = getattr(self._engine, "find_damage", None)
        return None if find is None else find()

    def _commit(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        if self._receipts.has(turn):
            return "duplicate"
        for call in self._calls(ctx, turn):
            call()
        return self._receipts.add(turn)

    async def _commit_async(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        if await anyio.to_thread.run_sync(self._receipts.has, turn):
            return "duplicate"
        for call in self._calls(ctx, turn):
            await call()
        return await anyio.to_thread.run_sync(self._receipts.add, turn)

    def _calls(self, ctx: EngineContext, turn: TurnCommit) -> Sequence[Callable[[], Any]]:
        take = getattr(self._engine, self._method)
        match self._method:
            case "after_turn":
                before = _before(turn, ctx.history)
                snapshot = partial(
                    take,
                    ctx,
                    (*before, *turn.messages),
                    pre_prompt_message_count=len(before),
                    budget=turn.budget,
                    usage=turn.usage,
                    prompt_cache=ctx.prompt_cache,
                )
                return (snapshot,)
            case "ingest_batch":
                return (partial(take, ctx, turn.messages),)
            case _:
                return tuple(partial(take, ctx, message) for message in turn.messages)

    def _forget(self, forget: Callable[..., Any]) -> Callable[..., None]:
        def forget_all(ctx: EngineContext, reason: ForgetReason) -> None:
            forget(ctx, reason)
            self._receipts.clear()

        return forget_all

    def _forget_async(self, forget: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
        async def forget_all(ctx: EngineContext, reason: ForgetReason) -> None:
            await forget(ctx, reason)
            await anyio.to_thread.run_sync(self._receipts.clear)

        return forget_all


def _before(turn: TurnCommit, history: History | None) -> Sequence[Message]:
    """Return the entries before the turn. The turn itself is in the history, unless it could not be stored."""
    if history is None or not turn.messages:
        return ()
    position = history.position(turn.messages[0].id)
    return history[: len(history) if position is None else position]
