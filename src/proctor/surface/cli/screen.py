"""What people see of a running campaign: lines drawn again and again on a terminal, else lines that stay."""

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
# Drawing is to take no more than a twentieth of the time, however much there is to draw.
_SHARE = 20
# The head, the line that says how many more there are, and the cursor's own.
_MARGIN = 3
# Older lines give way to newer ones where nobody reads them.
_MOST_LINES = 1000


class Screen(CampaignWatcher):
    """Shows a picture, after whoever keeps it was told."""

    def __init__(self, console: Console, title: str, *, picture: LiveView) -> None:
        self._console = console
        self._title = title
        self._picture = picture
        self._began_s = picture.clock.steady_s()
        self._is_unwatched = False
        self._in_use = anyio.Lock()

    @property
    def _took_ms(self) -> int:
        return round((self._picture.clock.steady_s() - self._began_s) * 1000)

    async def draw(self, *, is_last: bool = False) -> None:
        """In a thread, and let go of: a reader who is slow or gone must cost the attempts nothing."""
        if not self._is_unwatched:
            async with self._in_use:
                await anyio.to_thread.run_sync(self._draw, is_last, abandon_on_cancel=True)

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Somebody else has the terminal meanwhile."""
        async with self._in_use:
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

    def stopping(self, how: str) -> None:
        """Somebody asked for it."""


class PlainScreen(Screen):
    """For a log: short lines that are never rewritten."""

    def __init__(self, console: Console, title: str, *, picture: LiveView) -> None:
        super().__init__(console, title, picture=picture)
        self._lines: deque[tuple[int, str]] = deque(maxlen=_MOST_LINES)
        # Each is counted by one thread alone: lines are put in the one, and printed in the other.
        self._put_lines = 0
        self._printed_lines = 0
        self._news = anyio.Event()
        self._shut: set[str] = set()

    def entered(self, attempt: AttemptId, state: State) -> None:
        if state is State.TURN_RUNNING:
            self._line(attempt, "working")

    def saw(self, attempt: AttemptId, event: Event) -> None:
        if isinstance(event, ToolEnded) and not event.ok:
            track = self._picture.running.get(attempt)
            tool = None if track is None else track.tool
            what = "" if tool is None else f": {self._picture.deed(tool.name, tool.input)}"
            self._line(attempt, f"{event.name} {event.status}{what}")

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        summary = result.summary
        if summary is None:
            ending = "no evidence could be kept"
        else:
            ending = summary.outcome.value if summary.code is None else f"{summary.outcome.value} ({summary.code})"
        again = ""
        if retry_at_ms is not None:
            again = f", again in {duration(max(0, retry_at_ms - self._picture.clock.wall_ms()))}"
        done = f"({self._picture.settled_trials} of {self._picture.trials})"
        self._line(result.attempt_id, f"{result.state}: {ending}{again}   {done}")

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        shut = {each.key: each for each in limits if each.until_ms is not None}
        for key, each in shut.items():
            if key not in self._shut:
                self._put(f"{duration(self._took_ms):>9}  {limit_line(each, now_ms=self._picture.clock.wall_ms())}")
        for key in sorted(self._shut - shut.keys()):
            self._put(f"{duration(self._took_ms):>9}  {legible(key)}  open again")
        self._shut = set(shut)

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
    """For a terminal: drawn again several times a second, gone at the end."""

    def __init__(self, console: Console, title: str, *, picture: LiveView) -> None:
        super().__init__(console, title, picture=picture)
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
        # One that was stopped would begin again where it stood, over what was written since.
        self._live = self._new_live()

    def __rich__(self) -> RenderableType:
        picture, took_ms = self._picture, self._took_ms
        head = Text.assemble(
            (legible(self._title), "bold"),
            f"  {picture.settled_trials} of {picture.trials} done",
            (f"  {duration(took_ms)}", "dim"),
        )
        if (left_ms := picture.left_ms(took_ms=took_ms)) is not None:
            head.append(f"  about {duration(left_ms)} left", style="dim")
        head.append("" if picture.is_stopping is None else f"  {picture.is_stopping}", style="yellow")
        live = picture.look()
        if live is None:
            return head
        footer = list(waits(live, now_ms=live.at_ms))
        # What does not fit on the screen would only be cut off.
        most = max(1, self._console.height - len(footer) - _MARGIN)
        return Group(head, RunningLines(live.running, live.at_ms, most), *footer)
