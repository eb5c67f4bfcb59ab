"""A runtime process with its own record, for the frames that belong to no single attempt."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from proctor.attempt.model import Lease
from proctor.attempt.tap import RecordingTap
from proctor.errors import MachineError, ProctorError
from proctor.event.row import Direction
from proctor.evidence import tripwire
from proctor.evidence.artifacts import ProcessRecord
from proctor.evidence.layout import RuntimePaths
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import Redactor
from proctor.evidence.seal import seal_process
from proctor.evidence.secrets import Secret
from proctor.fact import Authority, Fact
from proctor.runtime.base import Host, HostRequest, Runtime

SMALL_BYTES = 256 * 1024
SEAL_S = 300.0

MakeDurable = Callable[[], Awaitable[None]]


@asynccontextmanager
async def open_recorded_host(
    runtime: Runtime,
    ask: HostRequest,
    *,
    paths: RuntimePaths | None,
    redactor: Redactor,
    planted: Secret,
    make_durable: MakeDurable | None = None,
) -> AsyncIterator[Lease]:
    """Open a runtime process and record its frames. At the end the record is sealed, with the count taken at the pipe.

    The record of a process that never became ready is sealed too. Without `paths` nothing is recorded.
    """
    if paths is not None:
        paths.create()
    frames = None if paths is None else paths.frames
    with FrameLog(frames, redactor=redactor, clock=ask.clock, forbidden=tripwire.forbidden_bytes(planted)) as log:
        tap = RecordingTap(log)
        tap.record(tripwire.planted_row(planted))
        host: Host | None = None
        refusal: BaseException | None = None
        try:
            async with runtime.open_host(ask, tap) as host:
                yield Lease(
                    process=ask.process,
                    host=host,
                    rows=lambda: log.head.rows,
                    failure=lambda: tap.failure,
                    home=ask.home,
                )
        except BaseException as error:
            if host is not None:
                raise
            refusal = error
        tap.commit()
        if tap.failure is not None:
            raise tap.failure from refusal
        if paths is not None:
            record = ProcessRecord(
                process_id=ask.process,
                runtime_id=runtime.id,
                # Before the process is ready there is no attempt: every frame belongs to the process.
                frames_in=log.counts[Direction.IN] if host is None else host.frames_in,
                rows={dir_.value: count for dir_, count in sorted(log.counts.items())},
                facts={
                    **(_start_failure_facts(refusal) if host is None else host.facts),
                    "redaction": tripwire.fact(planted),
                },
                stream=log.head,
                sha256="",
            )
            # Shielded so that a start that took too long leaves a sealed record as well; the call is bounded.
            with anyio.CancelScope(shield=refusal is not None):
                await seal_process_record(paths, record, log, redactor=redactor, make_durable=make_durable)
        if refusal is not None:
            raise refusal


def _start_failure_facts(refusal: BaseException | None) -> dict[str, Fact]:
    code, what = None, "the start was cancelled"
    if isinstance(refusal, ProctorError):
        code, what = refusal.code, refusal.what
    value = {"code": code, "what": what}
    return {"noStart": Fact(value=value, authority=Authority.OBSERVED, source="opening the process")}


async def seal_process_record(
    paths: RuntimePaths,
    record: ProcessRecord,
    log: FrameLog,
    *,
    redactor: Redactor,
    make_durable: MakeDurable | None = None,
) -> None:
    """Make the frames durable and write process.json, within a time limit. Raises MachineError if that fails."""

    def seal() -> None:
        log.sync()
        seal_process(paths, record, redactor=redactor)

    with anyio.move_on_after(SEAL_S) as patience:
        if make_durable is not None and log.size_bytes < SMALL_BYTES:
            await make_durable()
            seal_process(paths, record, redactor=redactor, is_durable=False)
            await make_durable()
        else:
            await anyio.to_thread.run_sync(seal, abandon_on_cancel=True)
    if patience.cancelled_caught:
        raise MachineError("machine.unwritable", f"not sealed within {SEAL_S:g} s", file=str(paths.folder))
