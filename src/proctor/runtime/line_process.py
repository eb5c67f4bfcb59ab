"""A contained process with a line protocol. Each line is recorded before its listener acts on it."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
import anyio.lowlevel

from proctor.clock import Clock
from proctor.contain.fences import Fences
from proctor.contain.launch import new_marker, wrap
from proctor.errors import DeadlineError, HangupError, unwrap_single
from proctor.event.row import ChannelClosed, ChildExited, Direction, FactsLearned, StepTaken
from proctor.evidence.redact import TextStream
from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter
from proctor.runtime.base import Executable, HostRequest, Tap
from proctor.runtime.executable import refuse_other_program, running_fact
from proctor.runtime.killer import KillerWatch
from proctor.runtime.machine_limits import find_tight_limit
from proctor.runtime.stderr_lines import StderrLines, describe_end
from proctor.transport.channel import Channel
from proctor.transport.process import AgentProcess, ExitStatus, StopDeadlines, open_process

EXIT_S = 2.0
STDERR_LINGER_S = 0.5
SEND_S = 30.0
MAX_BATCH_LINES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRoute:
    """What the recorder must know about a line before it is recorded."""

    stream: TextStream | None = None
    """The streamed text of which the line carries a piece."""
    ended: str | None = None
    """The key prefix of the streamed texts that end with the line."""


PLAIN = LineRoute()
"""The route of a line that carries no piece of a streamed text and ends none."""


class LineListener(Protocol):
    """The owner of a line process, usually a session."""

    def route(self, line: bytes) -> LineRoute:
        """Return the route of a line. Called before the line is recorded; must not act on it."""

    def on_line(self, line: bytes) -> None:
        """Act on a line. Called after it is recorded, once for each `route` call and in the same order."""

    def on_hangup(self, cause: str) -> None:
        """Handle the end of the output. Called once, after the end of the process is recorded."""


@dataclass(slots=True)
class LineCount:
    """The number of lines read from all processes of one host."""

    lines: int = 0


@dataclass(slots=True, kw_only=True)
class LineProcess:
    """A running process. Create it with `open_line_process`."""

    process: AgentProcess
    channel: Channel
    listener: LineListener
    tap: Tap
    clock: Clock
    count: LineCount
    is_turns_own: bool
    is_text: bool
    is_in_reach: bool
    program: Executable | None
    """The program that must run. It is compared at the first output; None means that it is not."""
    exit_s: float
    last_output_s: float
    """Steady time of the last output."""
    exit: ExitStatus | None = None
    hangup: str | None = None
    """Why nothing more can be sent. None while the process can be used."""
    _is_stopped: bool = False
    closed: anyio.Event = field(default_factory=anyio.Event)
    """Set when the end of the process is recorded."""
    _killer_watch: KillerWatch = field(default_factory=KillerWatch)
    _stderr: StderrLines = field(default_factory=StderrLines)
    _stderr_closed: anyio.Event = field(default_factory=anyio.Event)
    # Shielded so that output is still recorded after the caller is cancelled. Only `stop` ends it.
    _reading: anyio.CancelScope = field(default_factory=lambda: anyio.CancelScope(shield=True))

    async def send(self, data: bytes) -> None:
        """Record one line, then send it.

        Raises HangupError if the process has closed its output, and DeadlineError if it does not read within SEND_S.
        """
        if self.hangup is not None:
            raise HangupError("peer.hangup", self.hangup)
        self.tap.stage(Direction.OUT, data)
        self.tap.commit()
        try:
            with anyio.fail_after(SEND_S):
                await self.channel.send(data + b"\n")
        except TimeoutError:
            self.hangup = "the agent does not read its input"
            raise DeadlineError("peer.deadline", self.hangup) from None
        except anyio.get_cancelled_exc_class():
            # A part of the line may have been sent. The agent would take anything after it for the rest of the line.
            self.hangup = "a line to the agent was sent only in part"
            raise

    async def end_input(self) -> None:
        """Close the input of the process."""
        await self.process.close_stdin()

    async def stop(self) -> None:
        """End the whole process tree, and wait a bounded time until its end is recorded."""
        self._is_stopped = True
        await self.process.stop()
        with anyio.move_on_after(EXIT_S + STDERR_LINGER_S):
            await self.closed.wait()
        self._reading.cancel()

    # ── tasks ──

    async def run(self) -> None:
        """Read and record all output until the process ends."""
        try:
            with self._reading:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read_stderr)
                    await self._read_output()
                    self.exit = await self.channel.wait(deadline_s=self.exit_s)
                    # A grandchild may hold stderr open forever, so wait only a moment for the rest.
                    with anyio.move_on_after(STDERR_LINGER_S):
                        await self._stderr_closed.wait()
                    tasks.cancel_scope.cancel()
            is_abandoned = self._reading.cancelled_caught
            self._record_end("the process was abandoned" if is_abandoned else "the agent closed its output")
        finally:
            self.hangup = self.hangup or "the process was abandoned"
            self.listener.on_hangup(self.hangup)
            self.closed.set()

    async def _read_output(self) -> None:
        if self.is_text:
            await self._read_text()
            return
        splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES)
        try:
            while chunk := await self.channel.receive():
                await self._record_in_batches(splitter.feed(chunk))
        finally:
            if (torn := splitter.rest()).strip():
                self._record_lines([torn])

    async def _read_text(self) -> None:
        text = StderrLines(is_verbatim=True)
        try:
            while chunk := await self.channel.receive():
                self.last_output_s = self.clock.steady_s()  # also for a part of a line
                await self._record_in_batches(text.feed(chunk))
        finally:
            self._record_lines(text.rest())

    async def _record_in_batches(self, lines: list[bytes]) -> None:
        # A chunk may hold thousands of empty lines. Let other tasks, such as the clocks, run between batches.
        for at in range(0, len(lines), MAX_BATCH_LINES):
            self._record_lines(lines[at : at + MAX_BATCH_LINES])
            if len(lines) > MAX_BATCH_LINES:
                await anyio.lowlevel.checkpoint()

    def _record_lines(self, lines: list[bytes]) -> None:
        if not lines:
            return
        self.last_output_s = self.clock.steady_s()
        self.count.lines += len(lines)
        for line in lines:
            route = self.listener.route(line)
            if route.ended is not None:
                self.tap.release(route.ended)
            self.tap.stage(Direction.IN, line, stream=route.stream)
        self.tap.commit()
        self._check_program()
        for line in lines:
            self.listener.on_line(line)

    def _check_program(self) -> None:
        """Record which program runs, once. Raises MachineError if it is not the one that was located."""
        if self.program is not None:
            program, self.program = self.program, None
            running = running_fact(program, self.process)
            self.tap.record(FactsLearned(facts={"runningProgram": running}))
            refuse_other_program(program, running)

    async def _read_stderr(self) -> None:
        try:
            while chunk := await self.channel.receive_err():
                self.last_output_s = self.clock.steady_s() if self.is_text else self.last_output_s
                self._record_stderr(self._stderr.feed(chunk))
        finally:
            self._record_stderr(self._stderr.rest())
            self._stderr_closed.set()

    def _record_stderr(self, lines: list[bytes]) -> None:
        for line in lines:
            self.tap.stage(Direction.ERR, line)
        if lines:
            self.tap.commit()

    def _record_end(self, cause: str) -> None:
        self.hangup = describe_end(cause, self.exit, self._stderr.last)
        self.tap.release("")
        if not self.is_turns_own:
            self.tap.record(ChannelClosed(cause=cause))
        if self.exit is not None:
            self.record_exit(self.exit)
        elif self.is_turns_own:
            self.tap.record(StepTaken(step="output closed", detail={"what": cause}))

    def record_exit(self, status: ExitStatus) -> None:
        """Record how the process ended."""
        # A signal of Proctor's own is not the agent's.
        is_in_reach = self.is_in_reach and not self._is_stopped
        killer = self._killer_watch.find_killer(status, is_in_reach=is_in_reach)
        self.tap.record(
            ChildExited(
                code=status.code,
                signal=status.signal,
                killer=killer,
                tight_limit=None if status.code == 0 else find_tight_limit(),
                is_turns_own=self.is_turns_own,
            )
        )


@asynccontextmanager
async def open_line_process(
    argv: Sequence[str],
    *,
    request: HostRequest,
    listener: LineListener,
    tap: Tap,
    count: LineCount,
    env: Mapping[str, str],
    cwd: Path,
    fences: Fences | None = None,
    is_turns_own: bool = False,
    is_text: bool = False,
    is_in_reach: bool = False,
    exit_s: float = EXIT_S,
    stop_deadlines: StopDeadlines | None = None,
    wrap_channel: Callable[[Channel], Channel] | None = None,
    is_program_checked: bool = False,
) -> AsyncIterator[LineProcess]:
    """Start a program in the containment, and record its output. On exit, end its whole process tree and record that.

    `env` is added to the host's environment. Without `fences`, the process gets the `hiding` of the request.
    `is_turns_own` means that the session outlives the process. `is_text` means that the program has no protocol: all
    lines are recorded unchanged, also blank ones, and stderr counts as output. `is_in_reach` means that the agent's own
    commands can send the process signals. `exit_s` is how long the process may run after it has closed its output.
    `wrap_channel` replaces that of the request. With `is_program_checked`, MachineError is raised if another program
    than the request's answers.
    """
    wrap_channel = wrap_channel or request.wrap_channel
    plan = wrap(
        request.containment,
        argv,
        env={**request.env, **env},
        cwd=cwd,
        marker=new_marker(),
        fences=fences or request.hiding,
    )
    try:
        async with (
            open_process(plan, intents=request.intents, deadlines=stop_deadlines) as process,
            anyio.create_task_group() as tasks,
        ):
            line_process = LineProcess(
                process=process,
                channel=process if wrap_channel is None else wrap_channel(process),
                listener=listener,
                tap=tap,
                clock=request.clock,
                count=count,
                is_turns_own=is_turns_own,
                is_text=is_text,
                is_in_reach=is_in_reach,
                program=request.executable if is_program_checked else None,
                exit_s=exit_s,
                last_output_s=request.clock.steady_s(),
            )
            tasks.start_soon(line_process.run)
            try:
                yield line_process
            finally:
                # Shielded so that a cancelled caller cannot leak the tree; every wait inside is bounded.
                with anyio.CancelScope(shield=True):
                    await line_process.stop()
    except BaseExceptionGroup as group:
        raise unwrap_single(group) from group
