"""The real `codex exec` beside a scripted model: one host, as many sessions as a test wants, their events in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from proctor.event.usage import UsageFold
from proctor.model.server import open_model
from proctor.runtime.codex_exec import RUNTIME
from proctor.runtime.environment import agent_environment
from proctor.testing.trial import EventTap, Trial, host_asked

_PROCESSES = count(1)


@asynccontextmanager
async def real_exec(folder: Path, **ask: Any) -> AsyncIterator[Trial]:
    """The locked program, with an environment that is the same everywhere."""
    whole = {"env": agent_environment({"PATH": "/usr/bin:/bin"}, env={}).values, **ask}
    async with (
        open_model() as model,
        host_asked(folder, name=f"exec-{next(_PROCESSES)}", program=RUNTIME.locate({}), **whole) as asked,
        RUNTIME.open_host(asked, EventTap(RUNTIME.normalizer())) as host,
    ):
        yield Trial(runtime=RUNTIME, host=host, model=model, folder=folder)


def costs(tap: EventTap) -> list[tuple[int | None, str, str | None]]:
    """What each turn cost, on whose word, and whether the others agree."""
    fold = UsageFold()
    for event in tap.events:
        fold.feed(event)
    usage = fold.finish()
    turns = () if usage is None else usage.turns
    return [(None if each.tokens is None else each.tokens.total, each.authority.value, each.check) for each in turns]
