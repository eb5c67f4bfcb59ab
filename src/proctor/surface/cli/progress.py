"""Everybody who watches a running campaign, told by it as one: people, live.json, and a program that reads rows."""

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
from proctor.report.format_values import deed
from proctor.surface.cli.output import console_on
from proctor.surface.cli.row_stream import RowStream, open_rows
from proctor.surface.cli.screen import PlainScreen, Screen, TerminalScreen

_LAST_WORDS_S = 2.0


class Progress(CampaignWatcher):
    """The picture is told first, so that the others find it as it is."""

    def __init__(self, picture: LiveView, screen: Screen, rows: RowStream | None) -> None:
        self._screen = screen
        self._rows = rows
        self._readers: tuple[LiveView | Screen | RowStream, ...] = (picture, screen, *(() if rows is None else (rows,)))

    def began(self, began: RunStart) -> None:
        for each in self._readers:
            each.began(began)

    def started(self, attempt: AttemptId, *, runtime_id: RuntimeId) -> None:
        for each in self._readers:
            each.started(attempt, runtime_id=runtime_id)

    def entered(self, attempt: AttemptId, state: State) -> None:
        for each in self._readers:
            each.entered(attempt, state)

    def saw(self, attempt: AttemptId, event: Event) -> None:
        for each in self._readers:
            each.saw(attempt, event)

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        for each in self._readers:
            each.scheduled(limits, waiting=waiting)

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        for each in self._readers:
            each.settled(result, usd=usd, retry_at_ms=retry_at_ms, is_settled=is_settled)

    def ended(self, how: str) -> None:
        for each in self._readers:
            each.ended(how)

    def stopping(self, how: str) -> None:
        """Somebody asked for it; `how` says what is done about it."""
        for each in self._readers:
            each.stopping(how)

    def warnings(self) -> Iterator[str]:
        """What could not be told; to be asked when all is over."""
        if self._rows is not None:
            yield from self._rows.warnings()

    def aside(self) -> AbstractAsyncContextManager[None]:
        """Somebody else has the terminal meanwhile."""
        return self._screen.aside()


@asynccontextmanager
async def open_progress(
    title: str, *, trials: int = 0, rows_to: Path | None = None, price: Price | None = None
) -> AsyncIterator[Progress]:
    """On stderr, whatever becomes of stdout; beside the ledger; and to `rows_to`, where a program reads along."""
    console = console_on(sys.stderr)
    picture = LiveView(deed=deed, trials=trials) if price is None else LiveView(deed=deed, trials=trials, price=price)
    kind = TerminalScreen if console.is_terminal else PlainScreen
    screen = kind(console, title, picture=picture)
    with open_rows(rows_to) as file:
        rows = None if file is None else RowStream(file, picture=picture, name=str(rows_to))
        try:
            async with keep_live(picture), anyio.create_task_group() as tasks:
                tasks.start_soon(screen.show)
                if rows is not None:
                    tasks.start_soon(rows.show)
                yield Progress(picture, screen, rows)
                tasks.cancel_scope.cancel()
        finally:
            # Shielded and bounded: a terminal gets its cursor back, and a program its last rows, however it ended.
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(_LAST_WORDS_S):
                    await screen.draw(is_last=True)
                if rows is not None:
                    with anyio.move_on_after(_LAST_WORDS_S):
                        await rows.close()
