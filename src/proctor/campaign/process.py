"""A runtime process with a record of its own: what it says that belongs to no single attempt."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from proctor.attempt.model import Lease
from proctor.attempt.tap import RecordingTap
from proctor.errors import MachineError
from proctor.evidence import canary
from proctor.evidence.artifacts import ProcessRecord
from proctor.evidence.layout import RuntimePaths
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import Redactor
from proctor.evidence.seal import measure, seal_process
from proctor.evidence.secrets import Secret
from proctor.runtime.base import HostAsk, Runtime

SMALL_BYTES = 256 * 1024
SEAL_S = 300.0


@asynccontextmanager
async def open_recorded_host(
    runtime: Runtime,
    ask: HostAsk,
    *,
    paths: RuntimePaths | None,
    redactor: Redactor,
    planted: Secret,
    make_durable: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[Lease]:
    """Recorded, not interpreted. Afterwards the count taken at the pipe is sealed beside the record.

    Without paths nothing is kept of it.
    """
    if paths is not None:
        paths.create()
    with FrameLog(None if paths is None else paths.frames, redactor=redactor, clock=ask.clock) as log:
        tap = RecordingTap(log)
        tap.say(canary.shown(planted))
        async with runtime.open_host(ask, tap) as host:
            yield Lease(process=ask.process, host=host, rows=lambda: log.head.rows, failure=lambda: tap.failure)
        tap.commit()
        if tap.failure is not None:
            raise tap.failure
        if paths is None:
            return
        record = ProcessRecord(
            process_id=ask.process,
            strategy=runtime.id,
            frames_in=host.frames_in,
            rows={dir_.value: count for dir_, count in sorted(log.counts.items())},
            facts={**host.facts, "redaction": canary.fact(planted)},
            stream=log.head,
            sha256="",
        )

        unsaid = planted.value.encode()

        def seal() -> None:
            log.sync()
            measure(paths.frames, unsaid=unsaid)
            seal_process(paths, record, redactor=redactor)

        with anyio.move_on_after(SEAL_S) as patience:
            if make_durable is not None and log.size_bytes < SMALL_BYTES:
                measure(paths.frames, unsaid=unsaid)
                await make_durable()
                seal_process(paths, record, redactor=redactor, is_durable=False)
                await make_durable()
            else:
                await anyio.to_thread.run_sync(seal, abandon_on_cancel=True)
        if patience.cancelled_caught:
            raise MachineError("machine.unwritable", f"no seal within {SEAL_S:g} s", file=str(paths.folder))
