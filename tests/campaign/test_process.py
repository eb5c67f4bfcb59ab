"""The record of an agent's process: sealed when it has ended, and also when it never got ready."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from proctor.campaign.process import open_recorded_host
from proctor.errors import HangupError
from proctor.event.row import Direction
from proctor.evidence import tripwire
from proctor.evidence.artifacts import ProcessRecord
from proctor.evidence.digests import read_stamped
from proctor.evidence.layout import RunPaths
from proctor.evidence.redact import Redactor
from proctor.ids import ProcessId, RuntimeId
from proctor.runtime.base import Host, HostRequest, ModelChoice, Runtime, Tap
from proctor.testing.clock import FakeClock
from tests.runtime.twin import run

PROCESS = ProcessId("p-1")
Opening = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class NeverReady:
    """As much of a runtime as is asked for its process: it says two lines, and then goes its way."""

    goes: Opening
    id: RuntimeId

    @asynccontextmanager
    async def open_host(self, request: HostRequest, tap: Tap) -> AsyncIterator[Host]:
        tap.stage(Direction.IN, b'{"a":1}')
        tap.stage(Direction.ERR, b"no luck")
        tap.commit()
        await self.goes()
        yield cast("Any", None)


async def opened(folder: Path, goes: Opening) -> None:
    request = HostRequest(
        process=PROCESS,
        executable=None,
        home=folder,
        tmp=folder,
        env={},
        containment=cast("Any", None),
        intents=cast("Any", None),
        clock=FakeClock(),
        model=ModelChoice(provider="scripted", name="m"),
    )
    planted = tripwire.plant()
    async with open_recorded_host(
        cast("Runtime", NeverReady(goes, RuntimeId("never-ready"))),
        request,
        paths=RunPaths(folder).runtime(PROCESS),
        redactor=Redactor([planted]),
        planted=planted,
    ):
        raise AssertionError("it got ready")


def record(folder: Path) -> ProcessRecord:
    """Its digest holds, or this raises."""
    return read_stamped(RunPaths(folder).runtime(PROCESS).record, ProcessRecord)


@pytest.mark.requirement("runtime.strategy.fallback")
def test_a_start_that_fails_leaves_a_sealed_record_with_the_reason(tmp_path: Path) -> None:
    async def hangs_up() -> None:
        raise HangupError("peer.hangup", "exit 3")

    async def test() -> None:
        with pytest.raises(HangupError):
            await opened(tmp_path, hangs_up)

    run(test)
    found = record(tmp_path)
    assert (found.runtime_id, found.frames_in, found.rows) == ("never-ready", 1, {"err": 1, "in": 1, "self": 1})
    assert found.facts["noStart"].value == {"code": "peer.hangup", "what": "exit 3"}


@pytest.mark.requirement("runtime.strategy.fallback")
def test_a_start_that_is_given_up_leaves_a_sealed_record_too(tmp_path: Path) -> None:
    async def test() -> bool:
        async with anyio.create_task_group() as tasks:

            async def is_cancelled_then_waits() -> None:
                tasks.cancel_scope.cancel()
                await anyio.sleep_forever()

            await opened(tmp_path, is_cancelled_then_waits)
        return tasks.cancel_scope.cancelled_caught

    assert run(test)
    assert record(tmp_path).facts["noStart"].value == {"code": None, "what": "the start was cancelled"}
