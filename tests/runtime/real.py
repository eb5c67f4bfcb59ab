"""The real app-server beside a scripted model: one host, as many sessions as a test wants, their records in memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from proctor.event.row import Direction, QuestionAnswered
from proctor.model.script import Script
from proctor.model.server import ScriptedModel, open_model
from proctor.runtime.codex_app_server import RUNTIME
from proctor.runtime.codex_app_server.host import CodexHost, open_host
from proctor.runtime.codex_app_server.session import CodexSession
from proctor.runtime.environment import agent_environment
from proctor.testing.agent_under_test import host_asked, session_asked
from proctor.testing.journals import TEXT_BYTES
from tests.runtime.twin import MemoryTap

_PROCESSES = count(1)


@dataclass(slots=True)
class Talk:
    """One session with its record and its own place."""

    session: CodexSession
    tap: MemoryTap
    workspace: Path

    def heard(self, method: str) -> list[Any]:
        """The parameters of every frame of that method."""
        return [frame["params"] for frame in self.tap.heard if frame.get("method") == method]

    def sent(self, method: str) -> list[Any]:
        said = [msgspec.json.decode(line) for line in self.tap.of(Direction.OUT)]
        return [frame["params"] for frame in said if frame.get("method") == method]

    @property
    def answers(self) -> list[QuestionAnswered]:
        return [seen for seen in self.tap.of(Direction.SELF) if isinstance(seen, QuestionAnswered)]

    @property
    def turns(self) -> list[str]:
        """How its turns ended."""
        return [params["turn"]["status"] for params in self.heard("turn/completed")]

    @property
    def said(self) -> list[str]:
        """The agent's messages."""
        items = [params["item"] for params in self.heard("item/completed")]
        return [item["text"] for item in items if item["type"] == "agentMessage"]


@dataclass(slots=True)
class Real:
    """A running app-server."""

    host: CodexHost
    model: ScriptedModel
    tap: MemoryTap
    folder: Path
    _names: Any = field(default_factory=lambda: count(1))

    @asynccontextmanager
    async def talk(self, *steps: Mapping[str, Any], name: str | None = None, **ask: Any) -> AsyncIterator[Talk]:
        """A session whose model plays these steps."""
        key = name or f"talk-{next(self._names)}"
        url = self.model.play(key, msgspec.convert({"version": 1, "steps": list(steps)}, Script))
        asked, tap = session_asked(self.folder, name=key, base_url=url, **ask), MemoryTap()
        async with self.host.open_session(asked, tap) as session:
            yield Talk(session, tap, asked.workspace)


@asynccontextmanager
async def real_server(folder: Path, **ask: Any) -> AsyncIterator[Real]:
    """An app-server of the locked program, with an environment that is the same everywhere."""
    tap = MemoryTap()
    whole = {"env": agent_environment({"PATH": "/usr/bin:/bin"}, env={}).values, **ask}
    async with (
        open_model(text_bytes=TEXT_BYTES) as model,
        host_asked(folder, name=f"p{next(_PROCESSES)}", program=RUNTIME.locate({}), **whole) as asked,
        open_host(asked, tap) as host,
    ):
        yield Real(host, model, tap, folder)
