"""Adapters: an engine without `commit_turn` gets its turns by the method that it has, at least once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.clock import SYSTEM_CLOCK
from proctor.context.adapters import adapt_engine
from proctor.context.context_fold import ContextFold
from proctor.context.engine import EngineContext, EngineSetup, PromptCache, TurnCommit
from proctor.context.engines.none import INFO, NullEngine
from proctor.context.guard import CancelSignal, EngineHealth, GuardedEngine
from proctor.context.history import ListedHistory
from proctor.errors import EngineError
from proctor.event.message import Message
from proctor.event.model import ContextAssembled
from proctor.ids import Digest, SessionKey
from tests.context.histories import agent, call, ids, result, user
from tests.context.test_window_engine import BUDGET

EARLIER = (user(1, "one"), agent(2, "two"))
TURN = (user(3, "three"), call(4, {"command": "ls"}), result(5, 4, "out"), agent(6, "six"))
CACHE = PromptCache(read_tokens=7)


class Base:
    """An engine without any method that takes in turns."""

    def __init__(self, folder: Path) -> None:
        inner = NullEngine(EngineSetup(session=SessionKey("s"), folder=folder, options={}))
        self.info = INFO
        self.assemble, self.bootstrap, self.maintain = inner.assemble, inner.bootstrap, inner.maintain
        self.compact, self.forget, self.close = inner.compact, inner.forget, inner.close
        self.taken: list[Any] = []
        self.failures = 0

    def take(self, *what: Any) -> None:
        self.taken.append(what)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no luck")


class Snapshots(Base):
    def after_turn(
        self,
        ctx: EngineContext,
        messages: Sequence[Message],
        *,
        pre_prompt_message_count: int,
        budget: Any,
        usage: Any,
        prompt_cache: PromptCache | None,
    ) -> None:
        self.take(ids(messages), pre_prompt_message_count, budget, usage, prompt_cache)

    def ingest(self, ctx: EngineContext, message: Message) -> None:
        raise AssertionError("`after_turn` comes first")


class Batches(Base):
    def ingest_batch(self, ctx: EngineContext, messages: Sequence[Message]) -> None:
        self.take(ids(messages))


class Singles(Base):
    async def ingest(self, ctx: EngineContext, message: Message) -> None:
        self.take(message.id)


def commit(engine: Base, folder: Path, *, history: Sequence[Message] = (*EARLIER, *TURN), **change: Any) -> str:
    adapted = adapt_engine(engine, folder=folder)
    assert adapted.info.commits == "at-least-once"
    guard = GuardedEngine(adapted, clock=SYSTEM_CLOCK, health=EngineHealth())
    ctx = EngineContext(
        session=SessionKey("s"),
        model=None,
        tools=frozenset(),
        budget=BUDGET,
        cancel=CancelSignal(),
        prompt_cache=CACHE,
        history=ListedHistory(history),
    )
    turn = TurnCommit(key=TURN[0].id, messages=TURN, model=None, budget=BUDGET, usage=None)

    async def run() -> str:
        return await guard.commit_turn(replace(ctx, **change), turn)

    return anyio.run(run)


@pytest.mark.requirement("context.engines")
@pytest.mark.parametrize(
    "history",
    [(*EARLIER, *TURN), (*EARLIER, *TURN, user(7, "seven")), EARLIER],
    ids=["stored", "queued", "not stored"],
)
def test_adapter_gives_the_whole_history_with_the_turn_at_its_end(tmp_path: Path, history: Sequence[Message]) -> None:
    engine = Snapshots(tmp_path)
    assert commit(engine, tmp_path, history=history) == "committed"
    assert engine.taken == [(ids([*EARLIER, *TURN]), len(EARLIER), BUDGET, None, CACHE)]


def test_adapter_gives_the_messages_of_the_turn_together_or_one_by_one(tmp_path: Path) -> None:
    batches, singles = Batches(tmp_path), Singles(tmp_path)
    assert commit(batches, tmp_path) == "committed"
    (tmp_path / "other").mkdir()
    assert commit(singles, tmp_path / "other") == "committed"
    assert batches.taken == [(ids(TURN),)]
    assert singles.taken == [(id_,) for id_ in ids(TURN)]


@pytest.mark.parametrize("engine", [Snapshots, Batches, Singles])
def test_adapter_gives_a_turn_again_until_its_receipt_is_stored(tmp_path: Path, engine: Callable[[Path], Base]) -> None:
    failing = engine(tmp_path)
    failing.failures = 1
    with pytest.raises(EngineError, match="no luck"):
        commit(failing, tmp_path)
    assert commit(failing, tmp_path) == "committed"
    count = len(failing.taken)
    assert count > 1
    assert commit(failing, tmp_path) == "duplicate"
    assert len(failing.taken) == count


def test_adapter_forgets_its_receipts_with_the_engine(tmp_path: Path) -> None:
    engine = Batches(tmp_path)
    commit(engine, tmp_path)
    adapted = adapt_engine(engine, folder=tmp_path)
    adapted.forget(
        EngineContext(session=SessionKey("s"), model=None, tools=frozenset(), budget=BUDGET, cancel=CancelSignal()),
        "reset",
    )
    assert commit(engine, tmp_path) == "committed"


def test_adapter_leaves_an_engine_with_commit_turn_as_it_is(tmp_path: Path) -> None:
    engine = NullEngine(EngineSetup(session=SessionKey("s"), folder=tmp_path, options={}))
    assert adapt_engine(engine, folder=tmp_path) is engine


@pytest.mark.requirement("context.engines")
def test_turn_of_an_adapted_engine_says_at_least_once() -> None:
    fold = ContextFold()
    fold.feed(
        ContextAssembled(
            frame=1,
            at_ms=1,
            engine="e",
            version="1",
            commits="at-least-once",
            policy="degrade",
            policy_sha256=Digest("sha256:0"),
            mode="per_turn",
            thread="start",
            reason="new",
            how="none",
        )
    )
    assert fold.context is not None
    assert fold.context.commits == "at-least-once"
