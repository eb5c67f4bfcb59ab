"""What a running campaign shows: a line for each attempt on a terminal, else a line for each thing that happens."""

import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from proctor.attempt.machine import State
from proctor.campaign.watch import CampaignWatcher
from proctor.clock import SYSTEM_CLOCK
from proctor.event.model import Event, ToolBegan, ToolEnded, TurnBegan, UsageReported
from proctor.event.outcome import OutcomeFold
from proctor.event.usage import UsageFold
from proctor.ids import AttemptId
from proctor.report.words import count, deed, duration, legible, one_line
from proctor.surface.cli.output import console_on

_REFRESH_S = 0.2
_LAST_WORDS_S = 2.0
# Older lines give way to newer ones where nobody reads them.
_MOST_LINES = 1000

_PHASE = {
    State.SESSION_STARTING: "starting",
    State.SESSION_READY: "starting",
    State.TURN_RUNNING: "working",
}
_OVER = (State.SEALED, State.ABANDONED)


@dataclass(slots=True)
class _Track:
    """One attempt as far as it was seen."""

    state: State = State.QUEUED
    doing: str = ""
    tokens: int | None = None
    usage: UsageFold = field(default_factory=UsageFold)
    heard_s: float = field(default_factory=SYSTEM_CLOCK.steady_s)
    ending: OutcomeFold = field(default_factory=OutcomeFold)


class Progress(CampaignWatcher):
    """Follows every attempt; forgets those that are over."""

    def __init__(self, console: Console, title: str, *, cells: int) -> None:
        self._console = console
        self._title = title
        self._cells = cells
        self._began_s = SYSTEM_CLOCK.steady_s()
        self._running: dict[AttemptId, _Track] = {}
        self._done = 0
        self._stopping = ""
        self._is_unwatched = False
        self._screen = anyio.Lock()

    def entered(self, attempt: AttemptId, state: State) -> None:
        track = self._running.setdefault(attempt, _Track())
        track.state, track.heard_s = state, SYSTEM_CLOCK.steady_s()
        if state in _OVER:
            del self._running[attempt]
            self._done += 1
        self.changed(attempt, track)

    def saw(self, attempt: AttemptId, event: Event) -> None:
        track = self._running.setdefault(attempt, _Track())
        track.heard_s = SYSTEM_CLOCK.steady_s()
        track.ending.feed(event)
        match event:
            case ToolBegan(name=name, input=given):
                track.doing = f"{name}: {deed(name, given)}"
            case ToolEnded(ok=False, name=name, status=status):
                self.failed(attempt, f"{name} {status}: {track.doing.partition(': ')[2]}")
            case TurnBegan() | UsageReported():
                track.usage.feed(event)
                track.tokens = None if (tokens := track.usage.tokens) is None else tokens.total

    def stopping(self, how: str) -> None:
        self._stopping = how

    async def draw(self, *, is_last: bool = False) -> None:
        """In a thread, and let go of: a reader who is slow or gone must cost the attempts nothing."""
        if not self._is_unwatched:
            async with self._screen:
                await anyio.to_thread.run_sync(self._draw, is_last, abandon_on_cancel=True)

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Somebody else has the terminal meanwhile."""
        async with self._screen:
            await anyio.to_thread.run_sync(self.clear, abandon_on_cancel=True)
            yield

    def _draw(self, is_last: bool) -> None:
        try:
            self.paint()
            if is_last:
                self.clear()
        except (OSError, ValueError, SystemExit):  # rich ends the program when a pipe breaks
            self._is_unwatched = True

    # ── what the two ways of showing it do differently ──

    async def show(self) -> None:
        """Draw whenever there is something new, until cancelled."""

    def paint(self) -> None:
        """Write what is to be seen now."""

    def clear(self) -> None:
        """Take away what is not to stay."""

    def changed(self, attempt: AttemptId, track: _Track) -> None:
        """An attempt is in another state."""

    def failed(self, attempt: AttemptId, what: str) -> None:
        """A tool call failed."""


class PlainProgress(Progress):
    """For a log: short lines that are never rewritten."""

    def __init__(self, console: Console, title: str, *, cells: int) -> None:
        super().__init__(console, title, cells=cells)
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._news = anyio.Event()

    def changed(self, attempt: AttemptId, track: _Track) -> None:
        if track.state is State.TURN_RUNNING:
            self._line(attempt, "working")
        elif track.state in _OVER:
            told = track.ending.ending
            how = told.outcome.value if told.code is None else f"{told.outcome.value} ({told.code})"
            ending = how if track.state is State.SEALED else "no evidence could be kept"
            self._line(attempt, f"{track.state}: {ending}   ({self._done} of {self._cells})")

    def failed(self, attempt: AttemptId, what: str) -> None:
        self._line(attempt, what)

    def stopping(self, how: str) -> None:
        super().stopping(how)
        self._put(how)

    def _line(self, attempt: AttemptId, what: str) -> None:
        took_ms = round((SYSTEM_CLOCK.steady_s() - self._began_s) * 1000)
        self._put(f"{duration(took_ms):>9}  {legible(attempt)}  {one_line(what, limit=70)}")

    def _put(self, line: str) -> None:
        self._lines.append(line)
        self._news.set()

    async def show(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await self.draw()

    def paint(self) -> None:
        while self._lines:
            self._console.print(self._lines.popleft(), soft_wrap=True)


class LiveProgress(Progress):
    """For a terminal: drawn again several times a second, gone at the end."""

    def __init__(self, console: Console, title: str, *, cells: int) -> None:
        super().__init__(console, title, cells=cells)
        self._live = self._new_live()

    def _new_live(self) -> Live:
        return Live(self, console=self._console, auto_refresh=False, transient=True)

    async def show(self) -> None:
        while True:
            await self.draw()
            await anyio.sleep(_REFRESH_S)

    def paint(self) -> None:
        self._live.start()
        self._live.refresh()

    def clear(self) -> None:
        self._live.stop()
        # One that was stopped would begin again where it stood, over what was written since.
        self._live = self._new_live()

    def __rich__(self) -> RenderableType:
        now_s = SYSTEM_CLOCK.steady_s()
        head = Text.assemble(
            (self._title, "bold"),
            f"  {self._done} of {self._cells} done",
            (f"  {duration(round((now_s - self._began_s) * 1000))}", "dim"),
        )
        head.append(f"  {self._stopping}", style="yellow")
        table = Table.grid(padding=(0, 2), pad_edge=True)
        table.add_column(no_wrap=True, max_width=36)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        for _ in range(2):
            table.add_column(justify="right", no_wrap=True, style="dim")
        for attempt, track in self._running.items():
            age_ms = round((now_s - track.heard_s) * 1000)
            tokens = f"{count(track.tokens)} tokens"
            phase = _PHASE.get(track.state, track.state.value)
            table.add_row(legible(attempt), phase, track.doing, tokens, f"{duration(age_ms)} ago")
        return Group(head, table)


@asynccontextmanager
async def open_progress(title: str, *, cells: int) -> AsyncIterator[Progress]:
    """On stderr, whatever becomes of stdout."""
    console = console_on(sys.stderr)
    kind = LiveProgress if console.is_terminal else PlainProgress
    progress = kind(console, title, cells=cells)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(progress.show)
        yield progress
        tasks.cancel_scope.cancel()
    with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_WORDS_S):
        await progress.draw(is_last=True)
