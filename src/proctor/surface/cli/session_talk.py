"""`proctor session talk`: a conversation at a terminal, or prompts from a file or a pipe."""

import errno
import os
from functools import partial
from typing import TextIO

import anyio
import anyio.to_thread

from proctor.api import SESSION_LIMITS, Limits, Session
from proctor.errors import Exit, InputError, ProctorError
from proctor.event.model import Event, TextSaid, TextStreamed, ToolBegan, ToolEnded
from proctor.evidence.layout import RootPaths
from proctor.ids import ItemId
from proctor.report.format_values import describe_call, legible
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.interrupts import Interrupts, run_interruptible
from proctor.surface.cli.output import Output, to_json
from proctor.surface.cli.session_text import turn_line
from proctor.surface.session_turn import SessionOptions, TurnMeter, open_session, settings_for

MAX_LINE_BYTES = 1 << 20
"""Largest prompt. Codex accepts no longer one."""

_LIMITS = Limits(attempt="12h", turn=SESSION_LIMITS.turn, stall=SESSION_LIMITS.stall)
_CHUNK_BYTES = 1 << 16


def hold_conversation(
    root: RootPaths, key: str, options: SessionOptions, *, stdin: TextIO, calling: CommandFormatter, as_json: bool
) -> int:
    """Ask each line, and return the exit code of the first turn that failed, 0 if none did."""
    settings = settings_for(root, key, options)
    output, is_terminal = Output(is_json=as_json), stdin.isatty()
    lines = LineReader(stdin.fileno())

    async def talk(interrupts: Interrupts) -> int:
        async with open_session(root, key, settings, limits=_LIMITS) as live:
            conversation = _Conversation(live, lines, interrupts, output, is_terminal=is_terminal)
            try:
                return await conversation.run()
            except InputError as error:
                if error.code != "session.over":
                    raise
                output.fail(error, formatter=calling)
                return Exit.INFRASTRUCTURE

    return run_interruptible(talk)


class LineReader:
    """Reads lines from a terminal, a pipe or a file. A cancelled read loses nothing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""
        self._lines: list[str] = []
        self._is_over = False

    async def next(self) -> str | None:
        """Return the next line that is not blank; None at the end. Raises InputError for a line that is too long."""
        while not self._lines and not self._is_over:
            try:
                await anyio.wait_readable(self._fd)
            except PermissionError:
                await anyio.lowlevel.checkpoint()  # a regular file, which never blocks
            self._feed(self._read())
        return self._lines.pop(0) if self._lines else None

    def put_back(self, line: str) -> None:
        """Make a line the next one."""
        self._lines.insert(0, line)

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, _CHUNK_BYTES)
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal is gone
                return b""
            raise

    def _feed(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if not data:
            self._is_over, lines, self._buffer = True, [*lines, self._buffer], b""
        if any(len(each) > MAX_LINE_BYTES for each in (*lines, self._buffer)):
            raise InputError("usage", f"a prompt is longer than {MAX_LINE_BYTES} bytes")
        texts = (each.decode(errors="replace").rstrip("\r") for each in lines)
        self._lines += [each for each in texts if each.strip()]


class StreamedText:
    """Turns the events of a turn into text for a terminal, as they happen."""

    def __init__(self) -> None:
        self._streamed: set[ItemId] = set()
        self._is_line_open = False

    def feed(self, event: Event) -> str:
        """Return what an event adds to the text.

        >>> from proctor.ids import CallId, TurnId
        >>> text, turn, item = StreamedText(), TurnId("t"), ItemId("i")
        >>> text.feed(TextStreamed(frame=1, at_ms=1, turn=turn, item=item, text="Hel\\x1blo"))
        'Hel\\\\x1blo'
        >>> text.feed(ToolBegan(frame=2, at_ms=1, turn=turn, call=CallId("c"), kind="command", name="ls"))
        '\\n· ls\\n'
        """
        match event:
            case TextStreamed(item=item, text=text):
                begin = self._end_line() if item not in self._streamed else ""
                self._streamed.add(item)
                self._is_line_open = True
                return begin + legible(text)
            case TextSaid(item=item, text=text):
                return self._end_line() if item in self._streamed else f"{self._end_line()}{legible(text)}\n"
            case ToolBegan(name=name, input=given):
                return f"{self._end_line()}· {legible(describe_call(name, given))}\n"
            case ToolEnded(ok=False, name=name, status=status):
                return f"{self._end_line()}· {legible(name)}: {legible(status)}\n"
            case _:
                return ""

    def end(self) -> str:
        """Return what ends the text of the turn."""
        return self._end_line()

    def _end_line(self) -> str:
        end = "\n" if self._is_line_open else ""
        self._is_line_open = False
        return end


class _Conversation:
    """Prompts and answers, in an open session."""

    def __init__(
        self, live: Session, lines: LineReader, interrupts: Interrupts, output: Output, *, is_terminal: bool
    ) -> None:
        self._live = live
        self._lines = lines
        self._interrupts = interrupts
        self._output = output
        self._is_terminal = is_terminal
        self._is_streamed = is_terminal and not output.is_json

    async def run(self) -> int:
        first_failure: int = Exit.OK
        while not self._interrupts.is_end_requested and (prompt := await self._prompt()) is not None:
            code = await self._take(prompt)
            if code != Exit.INTERRUPTED:
                first_failure = first_failure or code
            elif not self._is_terminal:
                return code
        if self._is_streamed:
            await self._print("\n")
        is_cut_off = self._interrupts.is_end_requested and not self._is_terminal
        return Exit.INTERRUPTED if is_cut_off else first_failure

    async def _prompt(self) -> str | None:
        """Return the next prompt; None at the end of the input, or after Ctrl-C."""
        if self._is_streamed:
            await self._print("> ")
        prompt = None
        with self._interrupts.idle():
            prompt = await self._lines.next()
        return prompt

    async def _take(self, prompt: str) -> int:
        """Ask a turn, and return its exit code."""
        live, meter, text = self._live, TurnMeter(self._live), StreamedText()
        with self._interrupts.in_turn(live):
            turn = live.say(prompt)
            async with anyio.create_task_group() as tasks:
                if self._is_terminal:
                    tasks.start_soon(self._steer)
                async for event in turn:
                    meter.feed(event)
                    if self._is_streamed and (piece := text.feed(event)):
                        await self._print(piece)
                tasks.cancel_scope.cancel()
        asked = meter.report(is_interrupted=self._interrupts.is_turn_interrupted)
        if self._output.is_json:
            await self._print(to_json(asked, is_indented=False).decode())
        elif self._is_streamed:
            await self._print(text.end())
        elif asked.answer is not None:
            await self._print(f"{legible(asked.answer)}\n")
        self._output.note(turn_line(asked))
        return asked.exit

    async def _steer(self) -> None:
        """Send lines into the running turn. One that the agent does not accept, or that is late, is the next prompt."""
        while (line := await self._lines.next()) is not None:
            try:
                # Not cancelled at the end of the turn: whether the agent has accepted the line must be known.
                with anyio.CancelScope(shield=True):
                    await self._live.steer(line)
            except ProctorError as error:
                self._output.note(f"asked after this turn, because it cannot be sent into it: {legible(error.what)}")
                self._lines.put_back(line)
                return

    async def _print(self, text: str) -> None:
        # In a thread: a terminal that is blocked must not delay the agent's frames.
        await anyio.to_thread.run_sync(partial(self._output.text, text), abandon_on_cancel=True)
