"""Commands under Proctor: as flows of one campaign, or as sessions of one host whose events are kept."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio

from proctor.event.model import Event
from proctor.evidence.layout import AttemptPaths
from proctor.runtime.base import Session
from proctor.runtime.process import RUNTIME
from proctor.testing.agent_under_test import EventTap, host_asked, session_asked
from tests.lab import DEADLINE_S, Lab, mission, say_done

T = TypeVar("T")

NOWHERE = "http://127.0.0.1:1/v1"


def flow(command: str | list[str], *, options: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"runtime": ["process"], "options": {"process": {"command": command, **(options or {})}}, **more}


def run_flows(
    lab: Lab, flows: Mapping[str, Mapping[str, Any]], *, workspace: Mapping[str, str] | None = None, **top: Any
) -> dict[str, AttemptPaths]:
    """One attempt for each flow, all in one campaign, by the flow's id. The evidence is checked."""
    lab.is_other_agent_allowed = True
    copy = {} if workspace is None else {"workspace": {"copy": lab.workspace("base", workspace)}}
    work = mission("m", say_done("from the model"), prompt="Do it.", **copy)
    rows = [{"id": id_, **each} for id_, each in flows.items()]
    lab.run(lab.write_spec([work], flows=rows, **top))
    lab.assert_all_evidence_is_valid()
    return {name.split(".")[1]: paths for name, paths in lab.attempts().items()}


def run_long(test: Callable[[], Awaitable[T]]) -> T:
    """The test in an event loop, bounded for a busy machine."""

    async def bounded() -> T:
        with anyio.fail_after(DEADLINE_S):
            return await test()

    return anyio.run(bounded)


class WaitingTap(EventTap):
    """One that can be waited at."""

    _more = anyio.Event()

    def commit(self) -> None:
        super().commit()
        self._more.set()
        self._more = anyio.Event()

    async def until(self, kind: type[Event]) -> None:
        while not self.of(kind):
            await self._more.wait()


@asynccontextmanager
async def open_command(
    folder: Path, command: str | list[str], *, name: str = "one", **ask: Any
) -> AsyncIterator[tuple[Session, WaitingTap]]:
    """A session of a command, in its own places below the folder."""
    options = {"command": command, **ask.pop("options", {})}
    wrap_channel = ask.pop("wrap_channel", None)
    tap = WaitingTap(RUNTIME.normalizer())
    async with (
        host_asked(folder / name, name=name, program=RUNTIME.locate(options), wrap_channel=wrap_channel) as asked,
        RUNTIME.open_host(asked, tap) as host,
        host.open_session(session_asked(folder, name=name, base_url=NOWHERE, options=options, **ask), tap) as session,
    ):
        yield session, tap
