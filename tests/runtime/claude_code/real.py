"""The real Claude Code beside a scripted model: one host, as many sessions as a test wants, their events in memory."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec

from proctor.event.laws import Laws
from proctor.event.model import ApprovalResolved, Event, FrameNoted, TextSaid, ToolEnded, TurnEnded
from proctor.model.journal import JournalRow
from proctor.model.script import Script
from proctor.model.server import ScriptedModel, open_model
from proctor.runtime.base import Host, ModelChoice
from proctor.runtime.claude_code import RUNTIME
from proctor.runtime.claude_code.session import ClaudeSession
from proctor.runtime.environment import agent_environment
from proctor.testing.agent_under_test import EventTap, host_asked, session_asked
from proctor.testing.journals import TEXT_BYTES

DEADLINE_S = 60.0
T = TypeVar("T")
E = TypeVar("E", bound=Event)
_PROCESSES = count(1)


def run(test: Callable[[], Awaitable[T]]) -> T:
    """The test in an event loop, bounded."""

    async def bounded() -> T:
        with anyio.fail_after(DEADLINE_S):
            return await test()

    return anyio.run(bounded)


class WatchedTap(EventTap):
    """Whoever waits for something to show is told of every change."""

    def __init__(self) -> None:
        super().__init__(RUNTIME.normalizer())
        self.changed = anyio.Event()

    def commit(self) -> None:
        super().commit()
        self.changed.set()
        self.changed = anyio.Event()


@dataclass(slots=True)
class Talk:
    """One session with its events and its own place."""

    session: ClaudeSession
    tap: WatchedTap
    workspace: Path
    model: ScriptedModel
    name: str

    def of(self, kind: type[E]) -> list[E]:
        return self.tap.of(kind)

    def noted(self, native: str) -> int:
        """How many frames of that kind came."""
        return [event.native for event in self.of(FrameNoted)].count(native)

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.of(TextSaid)]

    @property
    def ends(self) -> list[tuple[str, str | None]]:
        return [(event.status, event.code) for event in self.of(TurnEnded)]

    @property
    def deeds(self) -> list[tuple[str, str]]:
        return [(event.name, event.status) for event in self.of(ToolEnded)]

    @property
    def answers(self) -> list[tuple[str, str]]:
        return [(event.decision, event.by) for event in self.of(ApprovalResolved)]

    @property
    def journal(self) -> tuple[JournalRow, ...]:
        return self.model.journal(self.name)

    async def asked(self, requests: int) -> None:
        """Until the model was asked so many times."""
        await self.model.journal_until(self.name, lambda rows: len(rows) >= requests)

    async def until(self, holds: Callable[[], Any]) -> None:
        """Until the record shows it."""
        while not holds():
            await self.tap.changed.wait()


@dataclass(slots=True)
class Real:
    host: Host
    model: ScriptedModel
    folder: Path
    _names: Any = field(default_factory=lambda: count(1))

    @asynccontextmanager
    async def talk(self, *steps: Mapping[str, Any], name: str | None = None, **ask: Any) -> AsyncIterator[Talk]:
        """A session whose model plays these steps; what comes of it must obey the laws."""
        key = name or f"talk-{next(self._names)}"
        url = self.model.play(key, msgspec.convert({"version": 1, "steps": list(steps)}, Script))
        if "model" in ask and ask["model"].base_url is None:
            ask["model"] = replace(ask["model"], base_url=url)
        asked, tap = session_asked(self.folder, name=key, base_url=url, **ask), WatchedTap()
        async with self.host.open_session(asked, tap) as session:
            assert isinstance(session, ClaudeSession)
            yield Talk(session, tap, asked.workspace, self.model, key)
        laws = Laws()
        assert [law for event in tap.events if (law := laws.feed(event)) is not None] == []


def provider(**more: Any) -> ModelChoice:
    """A provider that wants a key, played by the script of the session."""
    return ModelChoice(provider="anthropic", name="claude-sonnet-4-5", **more)


@asynccontextmanager
async def claude(folder: Path, **ask: Any) -> AsyncIterator[Real]:
    """A host of the program that `make agents` installs, with an environment that is the same everywhere."""
    whole = {"env": agent_environment({"PATH": "/usr/bin:/bin"}, env={}).values, **ask}
    async with (
        open_model(text_bytes=TEXT_BYTES) as model,
        host_asked(folder, name=f"c{next(_PROCESSES)}", program=RUNTIME.locate({}), **whole) as asked,
        RUNTIME.open_host(asked, WatchedTap()) as host,
    ):
        yield Real(host, model, folder)
