"""Show a running campaign on stderr: redrawn on a terminal, else as log lines."""

import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from proctor.attempt.machine import State
from proctor.attempt.model import AttemptResult
from proctor.campaign.live import LiveView
from proctor.campaign.watch import CampaignWatcher
from proctor.event.model import Event, ToolEnded
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId
from proctor.report.format_values import duration, legible, one_line, plural
from proctor.surface.cli.live_lines import RunningLines, limit_line, waits

_REFRESH_S = 0.2
# Drawing takes at most this fraction of the time: one twentieth.
_SHARE = 20
# Lines for the title, the number of attempts that are not shown, and the cursor.
_MARGIN = 3
# How often the check of the probes adds a line to the log.
_QUIET_MS = 2000
# If the reader is slow, the oldest lines are dropped.
_MOST_LINES = 1000


class Screen(CampaignWatcher):
    """Shows a live view, which must be updated before it."""

    def __init__(self, console: Console, title: str, *, view: LiveView) -> None:
        self._console = console
        self._title = title
        self._view = view
        self._began_s = view.clock.steady_s()
        self._is_broken = False
        self._in_use = anyio.Lock()

    @property
    def _took_ms(self) -> int:
        return round((self._view.clock.steady_s() - self._began_s) * 1000)

    async def draw(self, *, is_last: bool = False) -> None:
        """Draw in a thread that is abandoned on cancellation: a slow or closed terminal must not delay the attempts."""
        if not self._is_broken:
            async with self._in_use:
                await anyio.to_thread.run_sync(self._draw, is_last, abandon_on_cancel=True)

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Clear the display and do not draw inside this context."""
        async with self._in_use:
            await anyio.to_thread.run_sync(self.clear, abandon_on_cancel=True)
            yield

    def _draw(self, is_last: bool) -> None:
        try:
            self.paint()
            if is_last:
                self.clear()
        except (OSError, ValueError, SystemExit):  # rich raises SystemExit if a pipe breaks
            self._is_broken = True

    # ── overridden by the two kinds of screen ──

    async def show(self) -> None:
        """Draw whenever there is something new, until cancelled."""

    def paint(self) -> None:
        """Write the current state."""

    def clear(self) -> None:
        """Remove what should not remain on the terminal."""

    def stopping(self, how: str) -> None:
        """Show that the run was asked to stop."""


class PlainScreen(Screen):
    """Short log lines that are never redrawn."""

    def __init__(self, console: Console, title: str, *, view: LiveView) -> None:
        super().__init__(console, title, view=view)
        self._lines: deque[tuple[int, str]] = deque(maxlen=_MOST_LINES)
        # One counter per thread: the first where lines are added, the second where they are printed.
        self._put_lines = 0
        self._printed_lines = 0
        self._news = anyio.Event()
        self._closed: set[str] = set()
        self._checked_ms = 0

    def probes_checked(self, done: int, *, of: int) -> None:
        # Usually this takes a moment; only a slow check is worth a line.
        if self._took_ms - self._checked_ms >= _QUIET_MS:
            self._checked_ms = self._took_ms
            self._put(f"{duration(self._took_ms):>9}  checking probes: {done} of {of}")

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        if state is State.TURN_RUNNING:
            self._line(attempt, "working")

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        if isinstance(event, ToolEnded) and not event.ok:
            track = self._view.running.get(attempt)
            tool = None if track is None else track.tool
            what = "" if tool is None else f": {self._view.describe_call(tool.name, tool.input)}"
            self._line(attempt, f"{event.name} {event.status}{what}")

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        summary = result.summary
        if summary is None:
            word, ending = "abandoned", "its evidence could not be written"
        else:
            word = "ended"
            ending = summary.outcome.value if summary.code is None else f"{summary.outcome.value} ({summary.code})"
        again = ""
        if retry_at_ms is not None:
            again = f", retry in {duration(max(0, retry_at_ms - self._view.clock.wall_ms()))}"
        done = f"({self._view.settled_trials} of {self._view.trials})"
        self._line(result.attempt_id, f"{word}: {ending}{again}   {done}")

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        closed = {each.key: each for each in limits if each.until_ms is not None}
        for key, each in closed.items():
            if key not in self._closed:
                self._put(f"{duration(self._took_ms):>9}  {limit_line(each, now_ms=self._view.clock.wall_ms())}")
        for key in sorted(self._closed - closed.keys()):
            self._put(f"{duration(self._took_ms):>9}  {legible(key)}  open again")
        self._closed = set(closed)

    def stopping(self, how: str) -> None:
        self._put(how)

    def _line(self, attempt: AttemptId, what: str) -> None:
        self._put(f"{duration(self._took_ms):>9}  {legible(attempt)}  {one_line(what, limit=70)}")

    def _put(self, line: str) -> None:
        self._lines.append((self._put_lines, line))
        self._put_lines += 1
        self._news.set()

    async def show(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await self.draw()

    def paint(self) -> None:
        while self._lines:
            number, line = self._lines.popleft()
            if left_out := number - self._printed_lines:
                self._console.print(f"{plural(left_out, 'line')} left out", soft_wrap=True)
            self._printed_lines = number + 1
            self._console.print(line, soft_wrap=True)


class TerminalScreen(Screen):
    """A display that is redrawn several times a second, and removed at the end."""

    def __init__(self, console: Console, title: str, *, view: LiveView) -> None:
        super().__init__(console, title, view=view)
        self._live = self._new_live()
        self._cost_s = 0.0

    def _new_live(self) -> Live:
        return Live(self, console=self._console, auto_refresh=False, transient=True)

    async def show(self) -> None:
        while True:
            await self.draw()
            await anyio.sleep(max(_REFRESH_S, self._cost_s * _SHARE))

    def paint(self) -> None:
        began_s = time.thread_time()
        self._live.start()
        self._live.refresh()
        self._cost_s = time.thread_time() - began_s

    def clear(self) -> None:
        self._live.stop()
        # A stopped display would continue at its old position and overwrite what was printed since.
        self._live = self._new_live()

    def __rich__(self) -> RenderableType:
        view, took_ms = self._view, self._took_ms
        head = Text.assemble(
            (legible(self._title), "bold"),
            f"  {view.settled_trials} of {view.trials} done",
            (f"  {duration(took_ms)}", "dim"),
        )
        if (left_ms := view.left_ms(took_ms=took_ms)) is not None:
            head.append(f"  about {duration(left_ms)} left", style="dim")
        head.append("" if view.is_stopping is None else f"  {view.is_stopping}", style="yellow")
        live = view.describe()
        if live is None:
            if view.checked is not None:
                done, of = view.checked
                head.append(f"  checking probes: {done} of {of}", style="dim")
            return head
        footer = list(waits(live, now_ms=live.at_ms))
        # Lines that do not fit on the screen would be cut off.
        most = max(1, self._console.height - len(footer) - _MARGIN)
        return Group(head, RunningLines(live.running, live.at_ms, most), *footer)
