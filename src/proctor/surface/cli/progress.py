"""Progress of a running campaign: on the terminal, in live.json, and as progress events in a file."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio

from proctor.attempt.machine import State
from proctor.attempt.model import AttemptResult
from proctor.campaign.live import LiveView, Price, keep_live
from proctor.campaign.watch import CampaignWatcher, RunStart
from proctor.event.model import Event
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId, RuntimeId
from proctor.report.format_values import describe_call
from proctor.surface.cli.output import console_on
from proctor.surface.cli.row_stream import RowStream, open_rows
from proctor.surface.cli.screen import PlainScreen, Screen, TerminalScreen

_CLOSE_TIMEOUT_S = 2.0


class Progress(CampaignWatcher):
    """Passes what happens in a run to all displays. The live view is updated first, because the others read it."""

    def __init__(self, view: LiveView, screen: Screen, rows: RowStream | None) -> None:
        self._screen = screen
        self._rows = rows
        self._watchers: tuple[LiveView | Screen | RowStream, ...] = (view, screen, *(() if rows is None else (rows,)))

    def began(self, began: RunStart) -> None:
        for each in self._watchers:
            each.began(began)

    def probes_checked(self, done: int, *, of: int) -> None:
        for each in self._watchers:
            each.probes_checked(done, of=of)

    def started(self, attempt: AttemptId, *, runtime_id: RuntimeId) -> None:
        for each in self._watchers:
            each.started(attempt, runtime_id=runtime_id)

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        for each in self._watchers:
            each.state_entered(attempt, state)

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        for each in self._watchers:
            each.event_recorded(attempt, event)

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        for each in self._watchers:
            each.scheduled(limits, waiting=waiting)

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        for each in self._watchers:
            each.settled(result, usd=usd, retry_at_ms=retry_at_ms, is_settled=is_settled)

    def ended(self, how: str) -> None:
        for each in self._watchers:
            each.ended(how)

    def stopping(self, how: str) -> None:
        """Report that the run was asked to stop. `how` says what happens now."""
        for each in self._watchers:
            each.stopping(how)

    def warnings(self) -> Iterator[str]:
        """Yield what could not be written. To be called after the run."""
        if self._rows is not None:
            yield from self._rows.warnings()

    def suspended(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which the progress display leaves the terminal free, for example for a question."""
        return self._screen.suspended()


@asynccontextmanager
async def open_progress(
    title: str, *, trials: int = 0, rows_to: Path | None = None, price: Price | None = None
) -> AsyncIterator[Progress]:
    """Show progress on stderr and in live.json, and append events to `rows_to` if it is given."""
    console = console_on(sys.stderr)
    view = (
        LiveView(describe_call=describe_call, trials=trials)
        if price is None
        else LiveView(describe_call=describe_call, trials=trials, price=price)
    )
    kind = TerminalScreen if console.is_terminal else PlainScreen
    screen = kind(console, title, view=view)
    with open_rows(rows_to) as file:
        rows = None if file is None else RowStream(file, view=view, name=str(rows_to))
        try:
            async with keep_live(view), anyio.create_task_group() as tasks:
                tasks.start_soon(screen.show)
                if rows is not None:
                    tasks.start_soon(rows.show)
                yield Progress(view, screen, rows)
                tasks.cancel_scope.cancel()
        finally:
            # Shielded and bounded: however the run ends, the terminal is restored and the last events are written.
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(_CLOSE_TIMEOUT_S):
                    await screen.draw(is_last=True)
                if rows is not None:
                    with anyio.move_on_after(_CLOSE_TIMEOUT_S):
                        await rows.close()
