"""Opens and closes a conversation: workspace, record, session, clocks, seal. No process or scratch file is left."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from msgspec import structs

from proctor.attempt.converse import LiveSession
from proctor.attempt.finalize import finalize
from proctor.attempt.kept_turns import KeptTurns
from proctor.attempt.model import AttemptRequest
from proctor.attempt.stream import EventStream, replayed
from proctor.attempt.supervision import Supervision
from proctor.attempt.turn import open_session
from proctor.attempt.workspace_layout import InPlace, private_workspace, remove_scratch
from proctor.errors import MachineError, ProctorError
from proctor.event.row import SessionRefusal
from proctor.evidence.seal import write_seal
from proctor.runtime.base import Tool, Yield
from proctor.runtime.thread_normalizer import normalizer_of
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
    request: AttemptRequest,
    *,
    keep: RecordMode,
    workspace: Path | None,
) -> AsyncIterator[LiveSession]:
    """Open a conversation that works directly in `workspace`, or in an empty folder that is removed at the end.

    With a context engine, the native thread is opened by the first turn.

    At the end, in this order: the running turn is stopped, the session is closed, the evidence is sealed, and the
    scratch folder is removed. Raises ProctorError if the session cannot be opened or its evidence cannot be written.
    """
    if keep is RecordMode.OFF:
        # Nothing is stored that could grow.
        request = replace(request, limits=structs.replace(request.limits, evidence_bytes=sys.maxsize))
    holder = _SessionHolder(request, keep=keep, workspace=workspace)
    try:
        await holder.lay_out()
        with holder.open_recording():
            try:
                async with holder.talk() as live:
                    yield live
            finally:
                # Shielded, so that the evidence of a cancelled caller is sealed too. Limited to SEAL_S.
                with anyio.CancelScope(shield=True):
                    await holder.finish()
    finally:
        await remove_scratch(request)


def _yielding(tool: Tool, yield_turn: Callable[[str], None]) -> Tool:
    """Return the tool, with an end of the turn in place of a `Yield` that it raises."""

    async def call(arguments: Any) -> str:
        try:
            return await tool.call(arguments)
        except Yield as reason:
            yield_turn(f"yielded by the tool {tool.name}" + (f": {reason}" if str(reason) else ""))
        # The turn is being stopped, and this call with it.
        await anyio.sleep_forever()
        raise AssertionError("unreachable")

    return replace(tool, call=call)


def _absent_leftovers(root: Path) -> list[str]:
    return [name for name in LEFTOVERS if not os.path.lexists(root / name)]


class _SessionHolder:
    """State and steps of one conversation: `lay_out`, `open_recording`, `talk`, `finish`."""

    def __init__(
        self,
        request: AttemptRequest,
        *,
        keep: RecordMode,
        workspace: Path | None,
    ) -> None:
        self._is_on_disk = keep is RecordMode.DISK
        base_root = request.judging / "base" if self._is_on_disk else None
        request = replace(request, tools=tuple(_yielding(tool, self._yield_turn) for tool in request.tools))
        layout = private_workspace(request) if workspace is None else InPlace(root=workspace, base_root=base_root)
        self._supervision = Supervision(request, layout)
        self._is_seal_late = False
        # Names that the workspace lacked before, so that they may be removed afterwards.
        self._absent_before: list[str] = []
        self._stream = EventStream(
            keeps_all=keep is RecordMode.MEMORY,
            replay=(lambda: replayed(request.paths.frames, normalizer_of(request.runtime)))
            if self._is_on_disk
            else None,
        )
        self._turns = None if request.kept is None else KeptTurns(self._supervision, request.kept)
        self._live = LiveSession(
            self._supervision,
            folder=request.paths.folder if self._is_on_disk else None,
            stream=self._stream,
            turns=self._turns,
        )

    def _yield_turn(self, why: str) -> None:
        self._live.yield_turn(why)

    async def lay_out(self) -> None:
        """Create the scratch folder and, on disk, the evidence folder with attempt.json and prompt.txt."""
        supervision = self._supervision
        await supervision.lay_out()
        self._absent_before = _absent_leftovers(supervision.workspace.root)
        if self._is_on_disk:
            supervision.request.paths.create()
            supervision.write_first_files(PROMPT)

    def open_recording(self) -> AbstractContextManager[None]:
        return self._supervision.open_recording(self._live.event_recorded, is_on_disk=self._is_on_disk)

    @asynccontextmanager
    async def talk(self) -> AsyncIterator[LiveSession]:
        """Open the session and run its turns until the context ends. Raises what ended it early."""
        live, supervision = self._live, self._supervision
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            try:
                async with self._open_threads(tasks):
                    try:
                        yield live
                    finally:
                        # Shielded, so that a cancelled caller leaves nothing running. `close` has its own time limit.
                        with anyio.CancelScope(shield=True):
                            await live.close()
            except Exception as error:
                # Not raised inside the task group, which would wrap the caller's own error in a group.
                failure = error
        if isinstance(failure, ProctorError) and supervision.session is None:
            supervision.tap.record(SessionRefusal(code=failure.code, detail=str(failure)))
        if failure is not None:
            raise failure
        if (broken := self._broken()) is not None:
            raise broken

    @asynccontextmanager
    async def _open_threads(self, tasks: TaskGroup) -> AsyncIterator[None]:
        """Start the turns, with the thread of the request or, for a context engine, with those that it needs."""
        live, supervision = self._live, self._supervision
        sitting = supervision.request.sitting
        is_import = sitting is not None and sitting.is_import
        if self._turns is not None and self._turns.lifecycle is not None:
            async with self._turns.open_threads() as threads:
                if is_import:
                    # Not left to the first turn: what the thread holds already is part of its history.
                    await threads.import_history()
                tasks.start_soon(live.live)
                yield
            return
        async with open_session(supervision) as session:
            if is_import:
                await session.read_history()
            tasks.start_soon(live.live)
            yield

    def _broken(self) -> ProctorError | None:
        return self._live.failure or self._supervision.failure()

    async def finish(self) -> None:
        """Write what redaction held back, end the event stream, and seal. Raises MachineError after SEAL_S."""
        self._supervision.flush()
        self._stream.close()
        with anyio.move_on_after(SEAL_S) as deadline:
            await anyio.to_thread.run_sync(self._seal, abandon_on_cancel=True)
        if deadline.cancelled_caught:
            self._is_seal_late = True
            raise MachineError(
                "machine.unwritable", f"the evidence was not sealed within {SEAL_S:g} s", file=str(self._live.folder)
            )

    def _seal(self) -> None:
        supervision = self._supervision
        root = supervision.workspace.root
        remove_leftovers(root, EMPTY, names=self._absent_before)
        if not self._is_on_disk or self._broken() is not None:
            return
        _, sealed = finalize(supervision, snapshot(root))
        # After the time limit the caller has got an error that says there is no seal, so none may be written.
        if not self._is_seal_late:
            write_seal(supervision.request.paths, sealed, is_durable=True)
