"""A context engine that does what a test tells it, and notes its calls. Its entry point is made by `offer_engine`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

import proctor
from proctor.context.engine import (
    AssembleResult,
    CompactResult,
    CompactStatus,
    EngineContext,
    EngineInfo,
    EngineSetup,
    TurnCommit,
)
from proctor.context.history import History
from proctor.context.project import ContextProjection
from proctor.event.message import Message
from proctor.runtime.base import Tool
from tests.plugins import install

ID: Final = "scripted"


@dataclass(slots=True)
class Behaviour:
    """What the engine does. Changed by a test at any time."""

    addition: str | None = None
    messages: Callable[[History], Sequence[Message]] = tuple
    projection: ContextProjection = field(default_factory=ContextProjection)
    owns_compaction: bool = False
    compacted: CompactResult = field(default_factory=lambda: CompactResult(status=CompactStatus.COMPACTED))
    failures: dict[str, list[Exception]] = field(default_factory=dict)
    """By method: what its next calls raise."""
    results: dict[str, list[object]] = field(default_factory=dict)
    """By method: what its next calls return instead."""
    waits: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    """By method: what is awaited first."""
    tools: tuple[Tool, ...] = ()
    calls: list[str] = field(default_factory=list)
    """Every call so far, in order."""
    contexts: list[EngineContext] = field(default_factory=list)
    commits: dict[str, TurnCommit] = field(default_factory=dict)
    """The turns that it has, by key, across all its objects."""

    async def begin(self, method: str, ctx: EngineContext | None = None) -> None:
        """Note a call, and do what the test wants of it."""
        self.calls.append(method)
        if ctx is not None:
            self.contexts.append(ctx)
        if (wait := self.waits.get(method)) is not None:
            await wait()
        if failures := self.failures.get(method):
            raise failures.pop(0)

    def result(self, method: str, value: Any) -> Any:
        results = self.results.get(method)
        return results.pop(0) if results else value


BEHAVIOUR = Behaviour()


class ScriptedEngine:
    """Assembles the whole history, unless its behaviour says otherwise."""

    def __init__(self, setup: EngineSetup) -> None:
        self.info = EngineInfo(id=ID, name="Scripted", version="1", owns_compaction=BEHAVIOUR.owns_compaction)
        self._behaviour = BEHAVIOUR

    def tools(self) -> Sequence[Tool]:
        self._behaviour.calls.append("tools")
        return self._behaviour.tools

    async def bootstrap(self, ctx: EngineContext, history: History) -> None:
        await self._behaviour.begin("bootstrap", ctx)

    async def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        behaviour = self._behaviour
        await behaviour.begin("assemble", ctx)
        result: AssembleResult = behaviour.result(
            "assemble",
            AssembleResult(
                messages=tuple(behaviour.messages(history)),
                system_addition=behaviour.addition,
                projection=behaviour.projection,
            ),
        )
        return result

    async def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> Any:
        behaviour = self._behaviour
        await behaviour.begin("commit_turn", ctx)
        known = behaviour.commits.get(turn.key)
        if known is not None and known.messages != turn.messages:
            raise ValueError(f"{turn.key} was committed before, with other messages")
        behaviour.commits[turn.key] = turn
        return behaviour.result("commit_turn", "committed" if known is None else "duplicate")

    async def maintain(self, ctx: EngineContext, reason: str) -> None:
        await self._behaviour.begin(f"maintain {reason}", ctx)

    async def compact(self, ctx: EngineContext, *, force: bool, target: str, focus: str | None) -> CompactResult:
        await self._behaviour.begin("compact", ctx)
        result: CompactResult = self._behaviour.result("compact", self._behaviour.compacted)
        return result

    async def forget(self, ctx: EngineContext, reason: str) -> None:
        await self._behaviour.begin(f"forget {reason}", ctx)

    async def close(self) -> None:
        await self._behaviour.begin("close")


def create(setup: EngineSetup) -> ScriptedEngine:
    return ScriptedEngine(setup)


def offer_engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    """Install the engine in a folder that becomes the current one, and return its behaviour in this test."""
    site = folder / "site"
    install(site, "scripted-engine", points={}, modules={}, engines={ID: "tests.scripted_engine:create"})
    (folder / "proctor.toml").write_text(f'plugins = ["{ID}"]\n')
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(folder)
    behaviour = Behaviour()
    monkeypatch.setattr("tests.scripted_engine.BEHAVIOUR", behaviour)
    monkeypatch.setattr("proctor.context.guard.ENGINE_HEALTH._records", {})
    return behaviour


def scripted(**settings: Any) -> proctor.Context:
    """Return the settings of a session that uses it."""
    return proctor.Context(engine=ID, **settings)
