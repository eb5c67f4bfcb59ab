"""Asks the person at the terminal, one question at a time, with the progress display out of the way."""

import os
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress

import anyio
import anyio.to_thread
from rich.text import Text

from proctor.report.format_values import legible
from proctor.runtime.base import Decision, Question
from proctor.surface.cli.output import console_on
from proctor.surface.cli.progress import Progress

_WORDS = {"y": Decision.ACCEPT, "yes": Decision.ACCEPT, "n": Decision.DENY, "no": Decision.DENY}
_MOST_BYTES = 1024


def is_somebody_there() -> bool:
    """Whether a question can be seen and answered."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


class TerminalApprovals:
    """Decides by asking. Nobody's answer within the deadline is a denial, which whoever asks sees to."""

    def __init__(self, progress: Progress, *, deadline_s: float) -> None:
        self._progress = progress
        self._deadline_s = deadline_s
        self._in_turn = anyio.Lock()
        self._console = console_on(sys.stderr)

    async def decide(self, question: Question) -> Decision:
        # Who waits in line for the terminal waits on the same deadline.
        until_s = anyio.current_time() + self._deadline_s
        async with self._in_turn, self._progress.aside():
            await self._show(Text("\n").join([Text(), *_told(question)]))
            # What was typed before the question is no answer to it.
            with suppress(termios.error):
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
            try:
                decision = await self._answer(until_s)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                    await self._show(Text("\nno answer: denied", style="yellow"))
                raise
            await self._show(Text("accepted" if decision is Decision.ACCEPT else "denied", style="dim"))
            return decision

    async def _answer(self, until_s: float) -> Decision:
        while True:
            left_s = max(0, round(until_s - anyio.current_time()))
            await self._show(Text(f"Allow it? y or n, within {left_s} s: ", style="bold"), end="")
            await anyio.wait_readable(sys.stdin)
            said = os.read(sys.stdin.fileno(), _MOST_BYTES)
            if not said:
                return Decision.DENY
            if (decision := _WORDS.get(said.decode(errors="replace").strip().lower())) is not None:
                return decision

    async def _show(self, text: Text, *, end: str = "\n") -> None:
        """In a thread: a terminal that is held up must cost the attempts nothing."""

        def write() -> None:
            with suppress(OSError):
                self._console.print(text, end=end, soft_wrap=True)

        await anyio.to_thread.run_sync(write, abandon_on_cancel=True)


def _told(question: Question) -> Iterator[Text]:
    yield Text(f"The agent asks: {legible(question.about)}", style="bold yellow")
    rows = (
        ("command", question.command),
        ("in", question.cwd),
        *(("path", path) for path in question.paths),
        ("because", question.reason),
    )
    for name, value in rows:
        if value is not None:
            # Indented, so that no line of the agent's looks like one of ours.
            yield Text.assemble((f"  {name:9}", "dim"), legible(value).replace("\n", "\n" + " " * 11))
