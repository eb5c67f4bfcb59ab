"""The real app-server beside a scripted model: one host, as many sessions as a test wants, their records in memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from proctor import places
from proctor.clock import SYSTEM_CLOCK
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.event.row import Answered, Dir
from proctor.ids import AttemptId, ProcessId
from proctor.model.script import Script
from proctor.model.server import ScriptedModel, open_model
from proctor.runtime.base import HostAsk, ModelAsk, SessionAsk
from proctor.runtime.codex_app_server import RUNTIME
from proctor.runtime.codex_app_server.host import CodexHost, open_host
from proctor.runtime.codex_app_server.session import CodexSession
from proctor.runtime.environment import agent_environment
from proctor.spec.model import Approvals, Sandbox
from tests.runtime.twin import MemoryTap

_PROCESSES = count(1)
SCRIPTED = ModelAsk(provider="scripted", name="scripted", base_url="http://127.0.0.1:1/v1")


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
        said = [msgspec.json.decode(line) for line in self.tap.of(Dir.OUT)]
        return [frame["params"] for frame in said if frame.get("method") == method]

    @property
    def answers(self) -> list[Answered]:
        return [seen for seen in self.tap.of(Dir.SELF) if isinstance(seen, Answered)]

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
        tap = MemoryTap()
        workspace, tmp = self.folder / key / "workspace", self.folder / key / "tmp"
        for place in (workspace, tmp):
            place.mkdir(parents=True, exist_ok=True)
        whole: dict[str, Any] = {
            "attempt": AttemptId(key),
            "workspace": workspace,
            "tmp": tmp,
            "sandbox": Sandbox.WORKSPACE_WRITE,
            "approvals": Approvals.DENY,
            "model": ModelAsk(provider="scripted", name="scripted", base_url=url),
        }
        async with self.host.open_session(SessionAsk(**{**whole, **ask}), tap) as session:
            yield Talk(session, tap, workspace)


@asynccontextmanager
async def host_asked(folder: Path, *, home: Path | None = None, **ask: Any) -> AsyncIterator[HostAsk]:
    """What is asked for the locked program, contained; its home is below the folder unless it is given."""
    whole: dict[str, Any] = {
        "process": ProcessId(f"p{next(_PROCESSES)}"),
        "executable": RUNTIME.locate(),
        "home": home or folder / "home",
        "tmp": folder / "process-tmp",
        "env": agent_environment({"PATH": "/usr/bin:/bin"}, env={}).values,
        "containment": choose(survey(bundled_bwrap=bundled_bwrap())),
        "clock": SYSTEM_CLOCK,
        "model": SCRIPTED,
    }
    async with open_intents(places.state_dir() / "spawns") as intents:
        yield HostAsk(**{**whole, **ask}, intents=intents)


@asynccontextmanager
async def real_server(
    folder: Path, *, home: Path | None = None, model_ask: ModelAsk = SCRIPTED, **ask: Any
) -> AsyncIterator[Real]:
    """An app-server as it is asked for."""
    tap = MemoryTap()
    async with (
        open_model() as model,
        host_asked(folder, home=home, model=model_ask, **ask) as asked,
        open_host(asked, tap) as host,
    ):
        yield Real(host, model, tap, folder)
