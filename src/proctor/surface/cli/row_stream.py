"""Progress for programs: rows in a bounded queue, and a thread that waits for their reader so that nobody else does."""

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
# What a pipe takes whole once it says that it can be written.
_PIECE_BYTES = select.PIPE_BUF
_PATIENCE_S = 0.1


class RowStream(CampaignWatcher):
    """Tells what a picture shows, after whoever keeps that was told."""

    def __init__(self, file: int, *, picture: LiveView, name: str = "-", most_rows: int = MOST_ROWS) -> None:
        self._file = file
        self._name = name
        self._picture = picture
        self._most_rows = most_rows
        self._rows: deque[ProgressRow] = deque()
        self._left_out = 0
        self._due: dict[tuple[AttemptId | None, Callable[..., None]], float] = {}
        """What had a row lately, until when the next one waits; below nought: one does."""
        self._news = anyio.Event()
        self._is_over = False
        self._refusal: OSError | None = None
        # A thread that was let go of may still be at it when the next one comes.
        self._writing = threading.Lock()

    # ── what happens ──

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

    def entered(self, attempt: AttemptId, state: State) -> None:
        self._put(AttemptPhase(at_ms=self._now_ms, attempt_id=attempt, phase=state.value))

    def saw(self, attempt: AttemptId, event: Event) -> None:
        match event:
            case ToolBegan():
                self._sometimes(attempt, self._tell_tool)
            case UsageReported():
                self._sometimes(attempt, self._tell_usage)

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        self._sometimes(None, self._tell_limits)

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        for tell in (self._tell_tool, self._tell_usage):
            self._due.pop((result.attempt_id, tell), None)
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
                settled=self._picture.settled_trials,
                trials=self._picture.trials,
            )
        )

    def stopping(self, how: str) -> None:
        self._put(RunStopping(at_ms=self._now_ms, how=how))

    def ended(self, how: str) -> None:
        picture = self._picture
        row = RunEnded(at_ms=self._now_ms, how=how, settled=picture.settled_trials, trials=picture.trials)
        self._put(row, is_last=True)

    # ── what may come too often ──

    def _sometimes(self, attempt: AttemptId | None, tell: "Callable[[AttemptId | None], None]") -> None:
        """Now, or with the latest of the next moment where there was one in this."""
        now_s = self._picture.clock.steady_s()
        until_s = self._due.get((attempt, tell), 0.0)
        if abs(until_s) > now_s:
            self._due[attempt, tell] = -abs(until_s)
            self._news.set()
        else:
            self._due[attempt, tell] = now_s + TICK_S
            tell(attempt)

    def _tell_postponed(self) -> None:
        now_s = self._picture.clock.steady_s()
        for (attempt, tell), until_s in list(self._due.items()):
            if abs(until_s) <= now_s:
                del self._due[attempt, tell]
                if until_s < 0:
                    tell(attempt)
            elif until_s < 0:
                self._news.set()

    def _tell_tool(self, attempt: AttemptId | None) -> None:
        picture = self._picture
        if attempt is not None and (track := picture.running.get(attempt)) is not None and track.tool is not None:
            name, given = track.tool.name, track.tool.input
            doing = picture.deed(name, given)
            self._put(ToolCalled(at_ms=self._now_ms, attempt_id=attempt, name=name, doing=doing, calls=track.calls))

    def _tell_usage(self, attempt: AttemptId | None) -> None:
        if attempt is not None and (track := self._picture.running.get(attempt)) is not None:
            seen = self._picture.look_at(attempt, track)
            if seen.tokens is not None:
                self._put(UsageSeen(at_ms=self._now_ms, attempt_id=attempt, tokens=seen.tokens, usd=seen.usd))

    def _tell_limits(self, _: AttemptId | None) -> None:
        picture = self._picture
        self._put(LimitsChanged(at_ms=self._now_ms, waiting=picture.waiting, limits=picture.limits))

    @property
    def _now_ms(self) -> int:
        return self._picture.clock.wall_ms()

    # ── the queue and its end ──

    def _put(self, row: ProgressRow, *, is_last: bool = False) -> None:
        if self._is_over:
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
        """Write whenever there is something new, until cancelled. Rows that come fast share a write."""
        while not self._is_over:
            await self._news.wait()
            self._news = anyio.Event()
            await self._write_rows()
            await anyio.sleep(TICK_S)
            self._tell_postponed()

    async def close(self) -> None:
        """The last rows; whoever will not wait for the reader cancels it."""
        try:
            await self._write_rows()
        finally:
            self._is_over = True
            with self._writing:  # the file may be closed now
                pass

    async def _write_rows(self) -> None:
        await anyio.to_thread.run_sync(self._write, abandon_on_cancel=True)

    def _write(self) -> None:
        with self._writing:
            # Taken here, where they are written: whoever is cancelled on the way to a thread takes none with him.
            rows = [self._rows.popleft() for _ in range(len(self._rows))]
            data = memoryview(msgspec.json.Encoder().encode_lines(rows))
            try:
                while data and not self._is_over:
                    # Asked first: a write that waits could neither be ended nor left.
                    if select.select([], [self._file], [], _PATIENCE_S)[1]:
                        data = data[os.write(self._file, data[:_PIECE_BYTES]) :]
            except OSError as error:
                self._is_over = True
                if error.errno != errno.EPIPE:  # the reader has left
                    self._refusal = error

    def warnings(self) -> Iterator[str]:
        """Why rows are missing that somebody would have read."""
        if self._refusal is not None:
            yield f"--progress {self._name}: {self._refusal.strerror}; what was told after that is missing"


@contextmanager
def open_rows(path: Path | None) -> Iterator[int | None]:
    """The file to write rows to, where there is to be one: `-` is stdout; what a file holds is added to."""
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
