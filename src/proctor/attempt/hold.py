"""Holds a conversation open: workspace, record, session, clocks. Whatever happens inside, nothing is left behind."""

import os
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import anyio
import anyio.to_thread

from proctor.attempt.converse import LiveSession
from proctor.attempt.finalize import finalize
from proctor.attempt.model import AttemptAsk
from proctor.attempt.record import write_record
from proctor.attempt.recording import Recording, open_recording
from proctor.attempt.stream import EventStream, replayed
from proctor.attempt.supervise import remove_scratch
from proctor.attempt.turn import open_session
from proctor.attempt.watchdog import Watch
from proctor.errors import MachineError, ProctorError, disk_refusal
from proctor.event.row import WasRefused
from proctor.evidence import layout
from proctor.evidence.redact import Redactor
from proctor.evidence.seal import affix
from proctor.workspace.prepare import prepare
from proctor.workspace.snapshot import EMPTY, LEFTOVERS, remove_leftovers, snapshot

PROMPT = "A conversation: what was asked stands at each turn of transcript.jsonl.\n"

SEAL_S = 300.0


class Keep(StrEnum):
    """How much of a conversation is kept."""

    OFF = "off"  # the last events, to reconnect by
    MEMORY = "memory"  # all events, while the session object lives
    DISK = "disk"  # a sealed folder of evidence


@asynccontextmanager
async def hold_session(ask: AttemptAsk, *, keep: Keep, workspace: Path | None) -> AsyncIterator[LiveSession]:
    """Opens a conversation that works in `workspace`, in place, or in an empty folder that goes with it.

    Raises what kept it from being opened, or its evidence from being kept.
    """
    holder = _Holder(ask, keep=keep, workspace=workspace)
    try:
        await anyio.to_thread.run_sync(holder.lay_out)
        with holder.open_recording() as record:
            try:
                async with holder.talk(record) as live:
                    yield live
            finally:
                # Shielded so that a cancelled caller's evidence is sealed too; bounded.
                with anyio.CancelScope(shield=True):
                    await holder.finish(record)
    finally:
        await remove_scratch(ask.scratch)


class _Holder:
    """One conversation's places and files; each step is one method."""

    def __init__(self, ask: AttemptAsk, *, keep: Keep, workspace: Path | None) -> None:
        self._ask = ask
        self._is_on_disk = keep is Keep.DISK
        self._source = workspace
        self._redactor = Redactor(ask.secrets, private=ask.runtime.private)
        self._base = EMPTY
        self._is_given_up = False
        self._lacking: list[str] = []
        self._began_s = ask.clock.steady_s()
        self._stream = EventStream(
            is_all_kept=keep is Keep.MEMORY,
            replay=(lambda: replayed(ask.paths.frames, ask.runtime.normalizer())) if self._is_on_disk else None,
        )
        limits = ask.limits
        self._watch = Watch(
            now_s=self._began_s,
            attempt_ms=limits.attempt_ms,
            turn_ms=limits.turn_ms,
            stall_ms=limits.stall_ms,
            tokens=limits.tokens,
        )
        self._live = LiveSession(
            ask,
            workspace=ask.scratch / "workspace" if workspace is None else workspace,
            folder=ask.paths.folder if self._is_on_disk else None,
            watch=self._watch,
            stream=self._stream,
        )

    # ── before ──

    def lay_out(self) -> None:
        ask, workspace = self._ask, self._live.workspace
        try:
            (ask.scratch / "tmp").mkdir(mode=0o700, parents=True)
            if self._source is None:
                workspace.mkdir(mode=0o700)
        except OSError as error:
            raise disk_refusal(error, path=ask.scratch) from error
        self._lacking = [name for name in LEFTOVERS if not os.path.lexists(workspace / name)]
        if not self._is_on_disk:
            return
        if self._source is not None:
            prepare(self._source, into=self._copy)
            self._base = snapshot(self._copy)
        ask.paths.create()
        prompt = layout.write_text_artifact(ask.paths.prompt, PROMPT, redactor=self._redactor, is_durable=False)
        written = write_record(ask, base=self._base.digest, prompt=prompt, redactor=self._redactor)
        self._live.conversation.written = {layout.PROMPT: prompt, layout.ATTEMPT: written}

    @property
    def _copy(self) -> Path:
        """The caller's folder as it was, to tell what changed."""
        return self._ask.scratch / "base"

    def open_recording(self) -> AbstractContextManager[Recording]:
        return open_recording(self._ask, redactor=self._redactor, watcher=self._live.saw, is_on_disk=self._is_on_disk)

    # ── meanwhile ──

    @asynccontextmanager
    async def talk(self, record: Recording) -> AsyncIterator[LiveSession]:
        live, tap = self._live, record.tap
        problem: Exception | None = None
        async with anyio.create_task_group() as tasks:
            try:
                async with open_session(
                    self._ask, tap, live.workspace, live.conversation, watch=self._watch
                ) as session:
                    live.begin(session, tap, record.derivation)
                    tasks.start_soon(live.live)
                    try:
                        yield live
                    finally:
                        # Shielded so that a cancelled caller leaves nothing running; `close` is bounded by itself.
                        with anyio.CancelScope(shield=True):
                            await live.close()
            except Exception as error:
                # Kept from the task group, which would wrap the caller's own error into another.
                problem = error
        if isinstance(problem, ProctorError) and not live.conversation.is_open:
            tap.say(WasRefused(code=problem.code, detail=str(problem)))
        if problem is not None:
            raise problem
        if (failure := live.failure or live.broken()) is not None:
            raise failure

    # ── after ──

    async def finish(self, record: Recording) -> None:
        record.tap.release("")
        record.tap.commit()
        self._stream.close()
        with anyio.move_on_after(SEAL_S) as patience:
            await anyio.to_thread.run_sync(self._seal, record, abandon_on_cancel=True)
        if patience.cancelled_caught:
            self._is_given_up = True
            raise MachineError("machine.unwritable", f"no seal within {SEAL_S:g} s", file=str(self._live.folder))

    def _seal(self, record: Recording) -> None:
        ask, live = self._ask, self._live
        remove_leftovers(live.workspace, EMPTY, names=self._lacking)
        if not self._is_on_disk or live.failure is not None or live.broken() is not None:
            return
        _, sealed = finalize(
            ask if self._source is None else replace(ask, workspace_source=self._copy),
            record.derivation.finish(),
            live.conversation,
            base=self._base,
            now=snapshot(live.workspace),
            workspace=live.workspace,
            redactor=self._redactor,
            duration_ms=round((ask.clock.steady_s() - self._began_s) * 1000),
            streams=record.heads(),
            files=record.files(),
        )
        # Whoever waited was told that there is no seal.
        if not self._is_given_up:
            affix(ask.paths, sealed, is_durable=True)
