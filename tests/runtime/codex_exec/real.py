"""The real `codex exec` beside a scripted model: one host, as many sessions as a test wants, their events in memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from proctor.event.usage import UsageFold
from proctor.model.script import Script
from proctor.model.server import ScriptedModel, open_model
from proctor.runtime.base import Host, Session
from proctor.runtime.codex_exec import RUNTIME
from proctor.runtime.environment import agent_environment
from proctor.testing.agent_under_test import EventTap, host_asked, session_asked
from proctor.testing.journals import TEXT_BYTES

_PROCESSES = count(1)


@dataclass(slots=True)
class Exec:
    """A home that sessions share."""

    host: Host
    model: ScriptedModel
    folder: Path

    @asynccontextmanager
    async def session(
        self, *steps: Mapping[str, Any], name: str, **ask: Any
    ) -> AsyncIterator[tuple[Session, EventTap]]:
        """Whose model plays these steps."""
        url = self.model.play(name, msgspec.convert({"version": 1, "steps": list(steps)}, Script))
        tap = EventTap(RUNTIME.normalizer())
        async with self.host.open_session(session_asked(self.folder, name=name, base_url=url, **ask), tap) as session:
            yield session, tap


@asynccontextmanager
async def real_exec(folder: Path, **ask: Any) -> AsyncIterator[Exec]:
    """The locked program, with an environment that is the same everywhere."""
    whole = {"env": agent_environment({"PATH": "/usr/bin:/bin"}, env={}).values, **ask}
    async with (
        open_model(text_bytes=TEXT_BYTES) as model,
        host_asked(folder, name=f"exec-{next(_PROCESSES)}", program=RUNTIME.locate({}), **whole) as asked,
        RUNTIME.open_host(asked, EventTap(RUNTIME.normalizer())) as host,
    ):
        yield Exec(host, model, folder)


def costs(tap: EventTap) -> list[tuple[int | None, str, str | None]]:
    """What each turn cost, on whose word, and whether the others agree."""
    fold = UsageFold()
    for event in tap.events:
        fold.feed(event)
    usage = fold.finish()
    turns = () if usage is None else usage.turns
    return [(None if each.tokens is None else each.tokens.total, each.authority.value, each.check) for each in turns]
