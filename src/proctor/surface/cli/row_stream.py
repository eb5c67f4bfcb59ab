"""Write progress events for programs: a bounded queue, and a thread that waits for a slow reader."""

import errno
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from proctor.attempt.machine import State
from proctor.attempt.model import AttemptResult
from proctor.campaign.live import LiveView
from proctor.campaign.watch import CampaignWatcher, RunStart
from proctor.errors import InputError
from proctor.event.model import Event, ToolBegan, UsageReported
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId, RuntimeId
from proctor.surface.progress_rows import (
    AttemptPhase,
    AttemptSettled,
    AttemptStarted,
    LimitsChanged,
    ProgressRow,
    RowsLeftOut,
    RunBegan,
    RunEnded,
    RunStopping,
    ToolCalled,
    UsageSeen,
)

MOST_ROWS = 4096
TICK_S = 0.25
STDOUT = Path("-")
# A pipe that is writable accepts this many bytes without blocking.
_PIECE_BYTES = select.PIPE_BUF
_POLL_S = 0.1


class RowStream(CampaignWatcher):
    """Writes what happens in a run as rows. The live view must be updated before it."""

    def __init__(self, file: int, *, view: LiveView, name: str = "-", most_rows: int = MOST_ROWS) -> None:
        self._file = file
        self._name = name
        self._view = view
        self._most_rows = most_rows
        self._rows: deque[ProgressRow] = deque()
        self._left_out = 0
        self._due: dict[tuple[AttemptId | None, Callable[..., None]], float] = {}
        """When the next row of an attempt and kind may be written; negative if one is due then."""
        self._news = anyio.Event()
        self._has_ended = False
        self._is_closed = False
        self._error: OSError | None = None
        # A thread that was abandoned by a cancellation may still be writing when the next one starts.
        self._writing = threading.Lock()

    # ── events of the run ──

    def began(self, began: RunStart) -> None:
        self._put(
            RunBegan(
                at_ms=self._now_ms,
                campaign_id=began.campaign_id,
                run_id=began.run_id,
                trials=began.trials,
                settled=began.settled,
                dir=str(began.paths.folder),
            )
        )

    def started(self, attempt: AttemptId, *, runtime_id: RuntimeId) -> None:
        self._put(AttemptStarted(at_ms=self._now_ms, attempt_id=attempt, runtime_id=runtime_id))

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        self._put(AttemptPhase(at_ms=self._now_ms, attempt_id=attempt, phase=state.value))

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        match event:
            case ToolBegan():
                self._throttle(attempt, self._put_tool)
            case UsageReported():
                self._throttle(attempt, self._put_usage)

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        self._throttle(None, self._put_limits)

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        for put in (self._put_tool, self._put_usage):
            self._due.pop((result.attempt_id, put), None)
        summary = result.summary
        self._put(
            AttemptSettled(
                at_ms=self._now_ms,
                attempt_id=result.attempt_id,
                state="abandoned" if summary is None else "sealed",
                code=summary.code if summary is not None else None if result.error is None else result.error.code,
                summary=summary,
                usd=usd,
                retry_at_ms=retry_at_ms,
                settled=self._view.settled_trials,
                trials=self._view.trials,
            )
        )

    def stopping(self, how: str) -> None:
        self._put(RunStopping(at_ms=self._now_ms, how=how))

    def ended(self, how: str) -> None:
        for (attempt, put), until_s in self._due.items():
            if until_s < 0:
                put(attempt)
        self._due.clear()
        view = self._view
        row = RunEnded(at_ms=self._now_ms, how=how, settled=view.settled_trials, trials=view.trials)
        self._put(row, is_last=True)
        self._has_ended = True

    # ── rows that are limited to one per tick ──

    def _throttle(self, attempt: AttemptId | None, put: "Callable[[AttemptId | None], None]") -> None:
        """Write a row now, or at the end of the current tick if there was one in it already."""
        now_s = self._view.clock.steady_s()
        until_s = self._due.get((attempt, put), 0.0)
        if abs(until_s) > now_s:
            self._due[attempt, put] = -abs(until_s)
            self._news.set()
        else:
            self._due[attempt, put] = now_s + TICK_S
            put(attempt)

    def _put_due(self) -> None:
        now_s = self._view.clock.steady_s()
        for (attempt, put), until_s in list(self._due.items()):
            if abs(until_s) <= now_s:
                del self._due[attempt, put]
                if until_s < 0:
                    put(attempt)
            elif until_s < 0:
                self._news.set()

    def _put_tool(self, attempt: AttemptId | None) -> None:
        view = self._view
        if attempt is not None and (track := view.running.get(attempt)) is not None and track.tool is not None:
            name, given = track.tool.name, track.tool.input
            doing = view.describe_call(name, given)
            self._put(ToolCalled(at_ms=self._now_ms, attempt_id=attempt, name=name, doing=doing, calls=track.calls))

    def _put_usage(self, attempt: AttemptId | None) -> None:
        if attempt is not None and (track := self._view.running.get(attempt)) is not None:
            seen = self._view.look_at(attempt, track)
            if seen.tokens is not None:
                self._put(UsageSeen(at_ms=self._now_ms, attempt_id=attempt, tokens=seen.tokens, usd=seen.usd))

    def _put_limits(self, _: AttemptId | None) -> None:
        view = self._view
        self._put(LimitsChanged(at_ms=self._now_ms, waiting=view.waiting, limits=view.limits))

    @property
    def _now_ms(self) -> int:
        return self._view.clock.wall_ms()

    # ── queue and writer ──

    def _put(self, row: ProgressRow, *, is_last: bool = False) -> None:
        if self._is_closed or self._has_ended:
            return
        if len(self._rows) >= self._most_rows and not is_last:
            self._left_out += 1
            return
        if self._left_out:
            self._rows.append(RowsLeftOut(at_ms=row.at_ms, rows=self._left_out))
            self._left_out = 0
        self._rows.append(row)
        self._news.set()

    async def show(self) -> None:
        """Write new rows until cancelled. Rows in quick succession share a write."""
        while not self._is_closed:
            await self._news.wait()
            self._news = anyio.Event()
            await self._write_rows()
            await anyio.sleep(TICK_S)
            self._put_due()

    async def close(self) -> None:
        """Write the last rows. Waits for the reader; cancel it to stop waiting."""
        try:
            await self._write_rows()
        finally:
            self._is_closed = True
            with self._writing:  # the file may be closed now
                pass

    async def _write_rows(self) -> None:
        await anyio.to_thread.run_sync(self._write, abandon_on_cancel=True)

    def _write(self) -> None:
        with self._writing:
            # Taken in this thread: if the caller is cancelled before the thread starts, no row is lost.
            rows = [self._rows.popleft() for _ in range(len(self._rows))]
            data = memoryview(msgspec.json.Encoder().encode_lines(rows))
            try:
                while data and not self._is_closed:
                    # select first: a blocked write could be neither ended nor abandoned.
                    if select.select([], [self._file], [], _POLL_S)[1]:
                        data = data[os.write(self._file, data[:_PIECE_BYTES]) :]
            except OSError as error:
                self._is_closed = True
                if error.errno != errno.EPIPE:  # the reader has left
                    self._error = error

    def warnings(self) -> Iterator[str]:
        """Yield a warning if rows could not be written."""
        if self._error is not None:
            yield f"--progress {self._name}: {self._error.strerror}; later progress events are missing"


@contextmanager
def open_rows(path: Path | None) -> Iterator[int | None]:
    """Open the file that rows are appended to; `-` is stdout. Yields None if there is no path.

    Raises InputError if the file cannot be opened.
    """
    if path is None:
        yield None
        return
    if path == STDOUT:
        yield sys.stdout.fileno()
        return
    try:
        # Non-blocking, because opening a FIFO would otherwise wait for a reader for ever.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError("usage", f"--progress {path}: {error.strerror}") from error
    try:
        yield file
    finally:
        os.close(file)
