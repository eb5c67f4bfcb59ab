"""The real pi beside a scripted model."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from proctor.event.laws import Laws
from proctor.event.model import Event
from proctor.model.server import open_model
from proctor.runtime.base import Executable
from proctor.testing.trial import EventTap, Trial, host_asked
from proctor_pi import RUNTIME

DEADLINE_S: Final = 120.0
# No test waits for what is tried again, and pi never waits long.
OPTIONS: Final = {"max_retries": 1, "retry_delay_ms": 1}


def run(test: Callable[[], Awaitable[None]]) -> None:
    """In an event loop, bounded."""

    async def bounded() -> None:
        with anyio.fail_after(DEADLINE_S):
            await test()

    anyio.run(bounded)


@asynccontextmanager
async def open_pi(folder: Path, program: Executable, **ask: Any) -> AsyncIterator[Trial]:
    async with (
        open_model() as model,
        host_asked(folder, name="pi", program=program, **ask) as asked,
        RUNTIME.open_host(asked, EventTap(RUNTIME.normalizer())) as host,
    ):
        yield Trial(runtime=RUNTIME, host=host, model=model, folder=folder)


def broken_laws(events: list[Event]) -> list[str]:
    laws = Laws()
    return [law for event in events if (law := laws.feed(event)) is not None]
