"""A session of `codex exec`: one process per turn, and none between turns."""

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from proctor import decoding
from proctor.contain.identity import pin, send_signal
from proctor.errors import DeadlineError, HangupError, RefusedError, disk_error
from proctor.event.history_item import without_calls
from proctor.event.message import Message
from proctor.event.row import Direction, HistoryKept, StepTaken
from proctor.fact import Fact
from proctor.ids import ThreadId
from proctor.runtime.base import ContextUse, Delivery, HostRequest, SessionRequest, Tap
from proctor.runtime.capability import missing_capability
from proctor.runtime.codex.home import codex_home, own_variables
from proctor.runtime.codex.stored_threads import find_rollout
from proctor.runtime.codex_exec import steps, wire
from proctor.runtime.codex_exec.capabilities import ID
from proctor.runtime.codex_exec.command import Opening, instructions_of, opening_of, written_arguments
from proctor.runtime.codex_exec.rollout import Rollout, read_rollout
from proctor.runtime.codex_exec.session_facts import session_facts
from proctor.runtime.delivery import offer_of, receipt_of
from proctor.runtime.line_process import PLAIN, SEND_S, LineCount, LineProcess, LineRoute, open_line_process
from proctor.transport.process import StopDeadlines

# Its stdin is already closed, so this is only the time to exit by itself.
STOP_DEADLINES: Final = StopDeadlines(eof_s=2.0)
INTERRUPT_S: Final = 3.0
SETTLE_S: Final = 15.0


class ExecSession:
    """Controls turns by the type of each raw line. Their meaning is derived from the record by the normalizer."""

    is_alive = True  # each turn starts a new process

    def __init__(self, request: SessionRequest, tap: Tap, *, host: HostRequest, count: LineCount) -> None:
        self._request = request
        self._tap = tap
        self._host = host
        self._count = count
        self._thread: ThreadId | None = None
        self._line_process: LineProcess | None = None
        self._is_ended = self._is_halted = self._is_unwanted = False
        self._over = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()
        self._rollout: Rollout | None = None
        self._offered: str | None = None
        self._start_files = ExitStack()
        """Deletes the files that Codex reads only when it starts."""

    # ── what the supervisor sees ──

    @property
    def thread(self) -> ThreadId | None:
        return self._thread

    @property
    def facts(self) -> Mapping[str, Fact]:
        return session_facts(self._request, self._rollout, thread=self._thread)

    @property
    def last_heard_s(self) -> float:
        return self._host.clock.steady_s() if self._line_process is None else self._line_process.last_output_s

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        if not self._idle.is_set():
            raise RefusedError("peer.refused", "a turn is already running")
        opening = opening_of(self._request, current=self._thread)
        self._idle, self._over = anyio.Event(), anyio.Event()
        self._is_ended = self._is_halted = self._is_unwanted = False
        try:
            before = await self._read(opening.of)
            with (
                _written(output_schema, folder=self._host.tmp) as schema,
                self._start_files,
            ):
                argv = self._start_files.enter_context(
                    written_arguments(self._host, self._request, opening, schema=schema)
                )
                await self._run(argv, opening, prompt, before=before)
            if not self._is_ended and not self._is_halted:
                raise HangupError("peer.hangup", "the agent process ended before its turn")
        finally:
            self._idle.set()

    async def give(self, messages: Sequence[Message], *, instructions: str | None = None) -> Delivery:
        raise missing_capability("takes_history", runtime_id=ID)

    async def steer(self, text: str) -> None:
        raise RefusedError("runtime.capability", "codex exec cannot take input while a turn runs")

    async def compact(self) -> None:
        raise RefusedError("runtime.capability", "codex exec cannot shorten its history on request")

    async def interrupt(self) -> None:
        self._is_unwanted = True
        if self._line_process is not None and not self._is_ended:
            await self._halt(self._line_process)

    async def settle(self) -> None:
        """Wait until the turn's process tree has ended, which it does with the turn."""
        with anyio.move_on_after(SETTLE_S):
            await self._idle.wait()

    async def read_history(self) -> None:
        # The program states its thread with the first turn.
        rollout = await self._read(self._thread or self._request.resume)
        if rollout is None:
            raise RefusedError("peer.refused", "Codex has stored nothing of this thread")
        # Before the first turn it is read to be imported. Afterwards the record has the calls already.
        items = tuple(rollout.items) if self._thread is None else without_calls(rollout.items)
        self._tap.record(HistoryKept(source="rollout", items=items))

    async def read_context(self) -> ContextUse:
        """Return what the thread's file says. Codex writes none for an ephemeral thread."""
        rollout = self._rollout or await self._read(self._thread or self._request.resume)
        return ContextUse() if rollout is None else rollout.context

    # ── one turn ──

    async def _run(self, argv: Sequence[str], opening: Opening, prompt: str, *, before: Rollout | None) -> None:
        self._tap.record(StepTaken(step=steps.STARTED, detail={"how": opening.how, "argv": list(argv)}))
        self._offered = instructions_of(self._request, opening)
        if self._offered is not None:
            self._tap.record(offer_of(instructions=self._offered))
        if before is not None:
            self._tap.record(steps.usage_step(steps.USAGE_BEFORE, before.total))
        try:
            async with open_line_process(
                argv,
                request=self._host,
                listener=self,
                tap=self._tap,
                count=self._count,
                env=own_variables(self._host),
                cwd=self._request.workspace,
                is_turns_own=True,
                is_in_reach=self._request.can_leave_sandbox,
                stop_deadlines=STOP_DEADLINES,
                is_program_checked=True,
            ) as line_process:
                self._line_process = line_process
                try:
                    # The turn may have been interrupted while the program started.
                    if not self._is_unwanted:
                        await self._send(line_process, prompt)
                        await self._over.wait()
                finally:
                    # Shielded so that the agent can still store the interrupted turn; bounded by itself.
                    with anyio.CancelScope(shield=True):
                        if not self._over.is_set():
                            await self._halt(line_process)
            if line_process.exit is None and (ended := await line_process.process.wait(deadline_s=0)) is not None:
                # It closed its output before it exited.
                line_process.record_exit(ended)
        finally:
            self._line_process = None
            with anyio.CancelScope(shield=True):
                await self._note_cost(before, opening)

    async def _send(self, line_process: LineProcess, prompt: str) -> None:
        """Send the prompt without a line end, which would be part of it."""
        data = prompt.encode(errors="replace")
        self._tap.stage(Direction.OUT, data)
        self._tap.commit()
        # A program that fails to start does not read stdin, and prints the reason to stderr.
        with suppress(HangupError):
            with anyio.move_on_after(SEND_S) as timeout:
                await line_process.channel.send(data)
            if timeout.cancelled_caught:
                raise DeadlineError("peer.deadline", "the agent does not read its prompt")
        await line_process.end_input()

    async def _halt(self, line_process: LineProcess) -> None:
        """Interrupt the turn with SIGINT, on which Codex ends its children and writes its files. Then kill it."""
        if not self._is_halted:
            self._is_halted = True
            self._tap.record(StepTaken(step=steps.HALTED))
            agent = line_process.process.agent
            pidfd = None if agent is None else pin(agent)
            if pidfd is not None:
                send_signal(pidfd, signal.SIGINT)
                os.close(pidfd)
        with anyio.move_on_after(INTERRUPT_S):
            await line_process.closed.wait()
            return
        await line_process.stop()

    async def _note_cost(self, before: Rollout | None, opening: Opening) -> None:
        """Record the usage of the ended turn from Codex's rollout file."""
        after = self._rollout = await self._read(self._thread)
        earlier = {} if before is None or opening.how == "fork" else before.turns
        costs = [cost for turn, cost in ({} if after is None else after.turns).items() if turn not in earlier]
        if costs:
            self._tap.record(steps.usage_step(steps.TURN_USAGE, costs[-1]))

    async def _read(self, thread: ThreadId | None) -> Rollout | None:
        if thread is None:
            return None

        def read() -> Rollout | None:
            path = find_rollout(codex_home(self._host), thread)
            return None if path is None else read_rollout(path)

        return await anyio.to_thread.run_sync(read)

    # ── called by the line process ──

    def route(self, line: bytes) -> LineRoute:
        return PLAIN

    def on_line(self, line: bytes) -> None:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Decode as text first: a line that is not UTF-8 is recorded as not a message.
            type_ = decoding.decode(line.decode(), wire.Envelope).type
            if type_ == "thread.started":
                # Codex has read its settings.
                self._start_files.close()
                if self._offered is not None:
                    self._tap.record(receipt_of(instructions=self._offered))
                    self._offered = None
            if type_ == "thread.started" and self._thread is None:
                self._thread = ThreadId(decoding.decode(line, wire.ThreadStarted).thread_id)
            elif type_ in wire.ENDS:
                self._is_ended = True
                self._over.set()

    def on_hangup(self, cause: str) -> None:
        self._over.set()


@contextmanager
def _written(schema: Mapping[str, Any] | None, *, folder: Path) -> Iterator[Path | None]:
    """Write the schema to a temporary file for `--output-schema`."""
    if schema is None:
        yield None
        return
    try:
        descriptor, name = tempfile.mkstemp(prefix="schema-", suffix=".json", dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(schema))
    except OSError as error:
        raise disk_error(error, path=folder) from error
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
