"""Ask the user at the terminal to approve an agent's requests, one at a time, with the progress display suspended."""

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

_ANSWERS = {"y": Decision.ACCEPT, "yes": Decision.ACCEPT, "n": Decision.DENY, "no": Decision.DENY}
_MAX_BYTES = 1024


def is_interactive() -> bool:
    """Return whether a user can see and answer a question: stdin and stderr are terminals."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


class TerminalApprovals:
    """Decides by asking the user. The caller enforces the deadline, after which the request is denied."""

    def __init__(self, progress: Progress, *, deadline_s: float) -> None:
        self._progress = progress
        self._deadline_s = deadline_s
        self._in_turn = anyio.Lock()
        self._console = console_on(sys.stderr)

    async def decide(self, question: Question) -> Decision:
        # The time spent waiting for another question counts, too.
        until_s = anyio.current_time() + self._deadline_s
        async with self._in_turn, self._progress.suspended():
            await self._show(Text("\n").join([Text(), *_describe(question)]))
            # Text typed before the question is not an answer to it.
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
            await self._show(Text(f"Allow? (y/n, {left_s} s left) ", style="bold"), end="")
            await anyio.wait_readable(sys.stdin)
            data = os.read(sys.stdin.fileno(), _MAX_BYTES)
            if not data:
                return Decision.DENY
            if (decision := _ANSWERS.get(data.decode(errors="replace").strip().lower())) is not None:
                return decision

    async def _show(self, text: Text, *, end: str = "\n") -> None:
        """Print in a thread: a blocked terminal must not delay the attempts."""

        def write() -> None:
            with suppress(OSError):
                self._console.print(text, end=end, soft_wrap=True)

        await anyio.to_thread.run_sync(write, abandon_on_cancel=True)


def _describe(question: Question) -> Iterator[Text]:
    yield Text(f"The agent requests approval: {legible(question.about)}", style="bold yellow")
    rows = (
        ("command", question.command),
        ("in", question.cwd),
        *(("path", path) for path in question.paths),
        ("because", question.reason),
    )
    for name, value in rows:
        if value is not None:
            # Indented, so that the agent's text cannot look like a line of Proctor's.
            yield Text.assemble((f"  {name:9}", "dim"), legible(value).replace("\n", "\n" + " " * 11))
