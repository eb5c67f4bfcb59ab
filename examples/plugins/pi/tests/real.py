"""Run the real pi with a scripted model."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from proctor.event.laws import Laws
from proctor.event.model import Event
from proctor.ids import RuntimeId
from proctor.model.script import Script
from proctor.model.server import ScriptedModel, open_model
from proctor.runtime.base import Executable, Host, Session
from proctor.testing.agent_under_test import EventTap, host_asked, session_asked
from proctor.testing.journals import TEXT_BYTES
from proctor_pi import RUNTIME, dialect

DEADLINE_S: Final = 120.0
# One fast retry, so that no test waits long for pi.
OPTIONS: Final = {"max_retries": 1, "retry_delay_ms": 1}


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test in an event loop, with a deadline."""

    async def bounded() -> None:
        with anyio.fail_after(DEADLINE_S):
            await test()

    anyio.run(bounded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Opens sessions of pi, each with its own folders below `folder`."""

    host: Host
    model: ScriptedModel
    folder: Path

    @asynccontextmanager
    async def session(
        self, *steps: Mapping[str, Any], name: str, **ask: Any
    ) -> AsyncIterator[tuple[Session, EventTap]]:
        """Open a session whose model plays these steps. `name` is also the key of the model's journal.

        A `model` without a URL is played by the script as well.
        """
        url = self.model.play(name, msgspec.convert({"version": 1, "steps": list(steps)}, Script))
        tap = EventTap(RUNTIME.normalizer())
        if "model" in ask and ask["model"].base_url is None:
            ask["model"] = replace(ask["model"], base_url=url)
        asked = session_asked(self.folder, name=name, base_url=url, **ask)
        async with self.host.open_session(asked, tap) as session:
            yield session, tap


@asynccontextmanager
async def open_pi(folder: Path, program: Executable, **ask: Any) -> AsyncIterator[Room]:
    async with (
        open_model(dialects={RuntimeId("pi"): dialect}, text_bytes=TEXT_BYTES) as model,
        host_asked(folder, name="pi", program=program, **ask) as asked,
        RUNTIME.open_host(asked, EventTap(RUNTIME.normalizer())) as host,
    ):
        yield Room(host=host, model=model, folder=folder)


def broken_laws(events: list[Event]) -> list[str]:
    laws = Laws()
    return [law for event in events if (law := laws.feed(event)) is not None]
