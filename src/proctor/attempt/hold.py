"""Opens and closes a conversation: workspace, record, session, clocks, seal. No process or scratch file is left."""

import os
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from enum import StrEnum
from pathlib import Path

import anyio
import anyio.to_thread

from proctor.attempt.converse import LiveSession
from proctor.attempt.finalize import finalize
from proctor.attempt.model import AttemptRequest
from proctor.attempt.recording import Recording, open_recording, write_first_files
from proctor.attempt.stream import EventStream, replayed
from proctor.attempt.turn import open_session
from proctor.attempt.watchdog import Watch
from proctor.attempt.workspace_layout import (
    InPlace,
    WorkspaceLayout,
    create_scratch,
    private_workspace,
    remove_scratch,
)
from proctor.errors import MachineError, ProctorError
from proctor.event.row import SessionRefusal
from proctor.evidence.redact import Redactor
from proctor.evidence.seal import write_seal
from proctor.workspace.snapshot import EMPTY, LEFTOVERS, remove_leftovers, snapshot

PROMPT = "A conversation: the prompt of each turn is in transcript.jsonl.\n"
"""Content of the prompt.txt of a conversation."""

SEAL_S = 300.0
"""Time limit for sealing a conversation, in seconds."""


class RecordMode(StrEnum):
    """How much of a conversation is recorded."""

    OFF = "off"
    """The last events, in memory, for readers that reconnect."""
    MEMORY = "memory"
    """All events, in memory, as long as the session object exists."""
    DISK = "disk"
    """All events, in a sealed evidence folder."""


@asynccontextmanager
async def hold_session(
    request: AttemptRequest, *, keep: RecordMode, workspace: Path | None
) -> AsyncIterator[LiveSession]:
    """Open a conversation that works directly in `workspace`, or in an empty folder that is removed at the end.

    At the end, in this order: the running turn is stopped, the session is closed, the evidence is sealed, and the
    scratch folder is removed. Raises ProctorError if the session cannot be opened or its evidence cannot be written.
    """
    holder = _SessionHolder(request, keep=keep, workspace=workspace)
    try:
        await anyio.to_thread.run_sync(holder.lay_out)
        with holder.open_recording() as record:
            try:
                async with holder.talk(record) as live:
                    yield live
            finally:
                # Shielded, so that the evidence of a cancelled caller is sealed too. Limited to SEAL_S.
                with anyio.CancelScope(shield=True):
                    await holder.finish(record)
    finally:
        await remove_scratch(request)


class _SessionHolder:
    """State and steps of one conversation: `lay_out`, `talk`, `finish`."""

    def __init__(self, request: AttemptRequest, *, keep: RecordMode, workspace: Path | None) -> None:
        self._request = request
        self._is_on_disk = keep is RecordMode.DISK
        base_root = request.judging / "base" if self._is_on_disk else None
        self._workspace: WorkspaceLayout = (
            private_workspace(request) if workspace is None else InPlace(root=workspace, base_root=base_root)
        )
        self._redactor = Redactor(request.secrets, private=request.runtime.private_paths)
        self._base = EMPTY
        self._is_seal_late = False
        # Names that the workspace lacked before, so that they may be removed afterwards.
        self._absent_before: list[str] = []
        self._began_s = request.clock.steady_s()
        self._stream = EventStream(
            keeps_all=keep is RecordMode.MEMORY,
            replay=(lambda: replayed(request.paths.frames, request.runtime.normalizer())) if self._is_on_disk else None,
        )
        limits = request.limits
        self._watch = Watch(
            now_s=self._began_s,
            attempt_ms=limits.attempt_ms,
            turn_ms=limits.turn_ms,
            stall_ms=limits.stall_ms,
            tokens=limits.tokens,
            evidence_bytes=None if keep is RecordMode.OFF else limits.evidence_bytes,
        )
        self._live = LiveSession(
            request,
            workspace=self._workspace.root,
            folder=request.paths.folder if self._is_on_disk else None,
            watch=self._watch,
            stream=self._stream,
        )

    # ── before the session ──

    def lay_out(self) -> None:
        """Create the scratch folder and, on disk, the evidence folder with attempt.json and prompt.txt."""
        request, workspace = self._request, self._workspace
        create_scratch(request.scratch)
        self._base = workspace.create()
        self._absent_before = [name for name in LEFTOVERS if not os.path.lexists(workspace.root / name)]
        if not self._is_on_disk:
            return
        request.paths.create()
        self._live.conversation.written = write_first_files(
            request, prompt=PROMPT, base=self._base.digest, redactor=self._redactor
        )

    def open_recording(self) -> AbstractContextManager[Recording]:
        return open_recording(
            self._request, redactor=self._redactor, watcher=self._live.event_recorded, is_on_disk=self._is_on_disk
        )

    # ── during the session ──

    @asynccontextmanager
    async def talk(self, record: Recording) -> AsyncIterator[LiveSession]:
        """Open the session and run its turns until the context ends. Raises what ended it early."""
        live, tap = self._live, record.tap
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            try:
                async with open_session(
                    self._request, tap, live.workspace, live.conversation, watch=self._watch
                ) as session:
                    live.begin(session, tap, record.derivation)
                    tasks.start_soon(live.live)
                    try:
                        yield live
                    finally:
                        # Shielded, so that a cancelled caller leaves nothing running. `close` has its own time limit.
                        with anyio.CancelScope(shield=True):
                            await live.close()
            except Exception as error:
                # Not raised inside the task group, which would wrap the caller's own error in a group.
                failure = error
        if isinstance(failure, ProctorError) and not live.conversation.is_open:
            tap.record(SessionRefusal(code=failure.code, detail=str(failure)))
        if failure is not None:
            raise failure
        if (broken := live.failure or live.broken()) is not None:
            raise broken

    # ── after the session ──

    async def finish(self, record: Recording) -> None:
        """Write what redaction held back, end the event stream, and seal. Raises MachineError after SEAL_S."""
        record.tap.release("")
        record.tap.commit()
        self._stream.close()
        with anyio.move_on_after(SEAL_S) as deadline:
            await anyio.to_thread.run_sync(self._seal, record, abandon_on_cancel=True)
        if deadline.cancelled_caught:
            self._is_seal_late = True
            raise MachineError(
                "machine.unwritable", f"the evidence was not sealed within {SEAL_S:g} s", file=str(self._live.folder)
            )

    def _seal(self, record: Recording) -> None:
        request, live = self._request, self._live
        remove_leftovers(live.workspace, EMPTY, names=self._absent_before)
        if not self._is_on_disk or live.failure is not None or live.broken() is not None:
            return
        _, sealed = finalize(
            request,
            record.derivation.finish(),
            live.conversation,
            base=self._base,
            now=snapshot(live.workspace),
            workspace=self._workspace,
            redactor=self._redactor,
            duration_ms=round((request.clock.steady_s() - self._began_s) * 1000),
            streams=record.heads(),
            files=record.files(),
        )
        # After the time limit the caller has got an error that says there is no seal, so none may be written.
        if not self._is_seal_late:
            write_seal(request.paths, sealed, is_durable=True)
