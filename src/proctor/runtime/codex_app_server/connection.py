"""One channel to one app-server. Every line is routed and recorded before it is acted on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import msgspec
from anyio.abc import TaskGroup

from proctor import decoding
from proctor.clock import Clock
from proctor.errors import DeadlineError, HangupError, PeerError, RefusedError
from proctor.event.row import ChannelClosed, ChildExited, Direction, StepTaken, SupervisorRow
from proctor.protocol import jsonrpc
from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter
from proctor.runtime.base import Tap
from proctor.runtime.codex_app_server import policy, wire
from proctor.runtime.codex_app_server.approvals import ApprovalHandler
from proctor.runtime.codex_app_server.calls import OVERLOAD_PAUSES_S, Calls, Listener
from proctor.runtime.codex_app_server.questions import ServerRequest, read_request
from proctor.runtime.codex_app_server.route import Envelope, open_envelope
from proctor.runtime.codex_app_server.threads import Threads
from proctor.runtime.killer import KillerWatch
from proctor.runtime.stderr_lines import StderrLines, describe_end
from proctor.transport.channel import Channel

EXIT_S = 2.0
STDERR_LINGER_S = 0.5
# One chunk can hold hundreds of questions, which are all answered before the first answer is sent.
OUTBOX = 4096
# How long to wait for the exit of a process that has closed its channel.
DROP_S = 0.05
DROPPED = "the connection was lost"
# Replies to these name a thread that did not exist before.
STARTS = frozenset({"thread/start", "thread/fork"})


class Link(Protocol):
    """Reopens a channel that was lost while the server still runs."""

    async def reopen(self) -> bool:
        """Reopen the channel. Return whether it is open."""

    async def rejoin(self, connection: "Connection") -> None:
        """Resume the sessions, then call `resume` of the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A recorded line that is not sent yet. `channel` is the number of the channel it is meant for, from 0."""

    data: bytes
    listener: Listener | None
    channel: int


class Connection:
    """A connection for many sessions. `run` must run in a task to send and receive anything."""

    def __init__(
        self,
        channel: Channel,
        tap: Tap,
        *,
        clock: Clock,
        link: Link | None = None,
        pauses_s: Sequence[float] = OVERLOAD_PAUSES_S,
    ) -> None:
        self.frames_in = 0
        self.hangup: str | None = None
        self.closed = anyio.Event()
        self.is_closing = False
        self._channel = channel
        self._link = link
        self._tap = tap
        self._approvals = ApprovalHandler(None, tap, clock=clock)
        self._calls = Calls(self._send, pauses_s=pauses_s)
        self._threads = Threads[Listener]()
        self._starting = anyio.Lock(fast_acquire=True)
        self._killer_watch = KillerWatch()
        self._stderr = StderrLines()
        self._stderr_closed = anyio.Event()
        self._outbox, self._to_send = anyio.create_memory_object_stream[Outgoing](OUTBOX)
        self._drops = 0

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and no request that its caller gave up is still unanswered."""
        return self.hangup is None and self._calls.is_responsive

    # ── tasks ──

    async def run(self) -> None:
        """Send, receive and record until the channel closes for good."""
        try:
            async with self._outbox, self._to_send, anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_all)
                tasks.start_soon(self._read_stderr)
                await self._read_output(tasks)
                while self._link is not None and not self.is_closing and await self._reopen(self._link):
                    tasks.start_soon(self._link.rejoin, self)
                    await self._read_output(tasks)
                await self._record_end("the agent closed its output")
                self._release()
                tasks.cancel_scope.cancel()
        finally:
            self._release()
            self.closed.set()

    async def _read_output(self, tasks: TaskGroup) -> None:
        splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES)
        while chunk := await self._channel.receive():
            self._record_lines(splitter.feed(chunk), tasks)
        if (torn := splitter.rest()).strip():
            self._record_lines([torn], tasks)

    async def _read_stderr(self) -> None:
        try:
            while chunk := await self._channel.receive_err():
                self._record_stderr(self._stderr.feed(chunk))
        finally:
            self._record_stderr(self._stderr.rest())
            self._stderr_closed.set()

    def _record_stderr(self, lines: list[bytes]) -> None:
        for line in lines:
            self._tap.stage(Direction.ERR, line)
        if lines:
            self._tap.commit()

    async def _send_all(self) -> None:
        async for outgoing in self._to_send:
            try:
                if outgoing.channel != self._drops:
                    raise HangupError("peer.hangup", DROPPED)
                await self._channel.send(outgoing.data + b"\n")
            except HangupError as error:
                if self._link is None:
                    return
                self._record_unsent(outgoing, why=error.what)

    async def _reopen(self, link: Link) -> bool:
        """Reopen the channel. Open requests fail, because the server answers them on the old channel only."""
        if await self._channel.wait(deadline_s=DROP_S) is not None:
            return False
        self._drops += 1
        self._calls.lose(DROPPED)
        for listener in self.listeners():
            listener.on_connection_lost()
        for tap in self._taps():
            tap.release("")
            tap.record(StepTaken(step=DROPPED))
        return await link.reopen()

    def resume(self) -> None:
        """Let sessions send requests again."""
        self._calls.reopen()

    def note(self, seen: SupervisorRow) -> None:
        self._tap.record(seen)

    def _record_unsent(self, outgoing: Outgoing, *, why: str) -> None:
        """Record that a line was not sent, although its row is recorded as outgoing."""
        envelope = open_envelope(outgoing.data)
        detail = {"method": envelope.method, "request": envelope.id, "why": why}
        # A session without a thread may have ended, and its record may be closed.
        owner = outgoing.listener if outgoing.listener in self.listeners() else None
        self._tap_of(owner).record(StepTaken(step="not sent", detail=detail))

    async def _record_end(self, cause: str) -> None:
        self.hangup, sessions = cause, max(1, len(self.listeners()))
        for tap in self._taps():
            tap.release("")
            tap.record(ChannelClosed(cause=cause))
        status = await self._channel.wait(deadline_s=EXIT_S)
        if status is not None:
            is_in_reach = any(listener.can_signal_codex for listener in self.listeners())
            killer = self._killer_watch.find_killer(status, is_in_reach=is_in_reach)
            exited = ChildExited(code=status.code, signal=status.signal, killer=killer, sessions=sessions)
            for tap in self._taps():
                tap.record(exited)
            # A grandchild may hold stderr open forever, so wait only a moment for the rest.
            with anyio.move_on_after(STDERR_LINGER_S):
                await self._stderr_closed.wait()
        self.hangup = describe_end(cause, status, self._stderr.last)

    def _release(self) -> None:
        """Wake everything that waits for the server. Its end is already recorded."""
        self.hangup = self.hangup or "the connection was abandoned"
        self._calls.hang_up(self.hangup)
        for listener in self.listeners():
            listener.on_hangup(self.hangup)

    # ── receiving ──

    def _record_lines(self, lines: list[bytes], tasks: TaskGroup) -> None:
        self.frames_in += len(lines)
        heard: list[tuple[bytes, Envelope, Listener | None]] = []
        touched: dict[int, Tap] = {}
        for line in lines:
            envelope = open_envelope(line)
            listener = self._listener_of(envelope)
            tap = self._tap_of(listener)
            if envelope.ended_streams is not None:
                tap.release(envelope.ended_streams)
            tap.stage(Direction.IN, line, stream=envelope.text_stream)
            touched[id(tap)] = tap
            heard.append((line, envelope, listener))
        for tap in touched.values():
            tap.commit()
        for line, envelope, listener in heard:
            self._act(line, envelope, listener, tasks)

    def _listener_of(self, envelope: Envelope) -> Listener | None:
        if envelope.method is None:
            pending = self._calls.waiting_for(envelope)
            if pending is not None and pending.method in STARTS:
                self._threads.bind(_thread_started(envelope), pending.listener)
            return None if pending is None else pending.listener
        thread = envelope.thread
        if thread is None:
            return None
        if self._threads.owner(thread) is None:
            if envelope.parent_thread is not None:
                # The work of an agent's subagents is part of its attempt.
                self._threads.bind(thread, self._threads.owner(envelope.parent_thread))
            elif len(starts := self._calls.unanswered(STARTS)) == 1:
                # Threads start one at a time, so an unknown thread is the one being started.
                self._threads.bind(thread, starts[0].listener)
        return self._threads.owner(thread)

    def _act(self, line: bytes, envelope: Envelope, listener: Listener | None, tasks: TaskGroup) -> None:
        approvals = self._approvals if listener is None else listener.approvals
        if envelope.method is None:
            self._calls.settle(envelope)
        elif envelope.id is not None:
            question = read_request(envelope.id, envelope.method, line)
            if (answer := approvals.take(question)) is not None:
                self._reply(question, answer, listener)
            else:
                # In a separate task, so that a slow callback does not delay other frames.
                tasks.start_soon(self._consider, question, approvals, listener)
        else:
            approvals.on_message(envelope, line)
        if listener is not None:
            listener.on_message(envelope, line)

    async def _consider(self, question: ServerRequest, approvals: ApprovalHandler, listener: Listener | None) -> None:
        def record_row(seen: SupervisorRow) -> None:
            # The record of a session that is over may be sealed.
            self._tap_of(listener if listener in self.listeners() else None).record(seen)

        if (answer := await approvals.consider(question, record_row=record_row)) is not None:
            self._reply(question, answer, listener)

    def _reply(self, question: ServerRequest, answer: policy.Answer, listener: Listener | None) -> None:
        if answer.error is None:
            data = jsonrpc.reply(question.request, answer.result)
        else:
            data = jsonrpc.error_reply(question.request, policy.METHOD_NOT_FOUND, answer.error)
        try:
            self._send(data, listener)
        except PeerError as error:
            # The agent does not read its input, or has ended. The attempt's clocks end the wait.
            detail = {"request": str(question.request), "why": error.what}
            self._tap_of(listener).record(StepTaken(step="answer not sent", detail=detail))

    # ── sending ──

    async def call(
        self, method: str, params: Any, *, deadline_s: float, listener: Listener | None = None
    ) -> msgspec.Raw:
        """Send a request and return its reply. Waits first if the connection is being reopened."""
        return await self._calls.call(method, params, deadline_s=deadline_s, listener=listener)

    async def call_while_reopening(
        self, method: str, params: Any, *, deadline_s: float, listener: Listener | None = None
    ) -> msgspec.Raw:
        """Send a request at once, even while the connection is being reopened."""
        return await self._calls.call(method, params, deadline_s=deadline_s, listener=listener, is_early=True)

    def notify(self, method: str) -> None:
        self._send(jsonrpc.notification(method), None)

    def _send(self, data: bytes, listener: Listener | None) -> None:
        """Record a line, then queue it. Raises DeadlineError if the queue is full, HangupError if it is closed."""
        tap = self._tap_of(listener)
        tap.stage(Direction.OUT, data)
        tap.commit()
        try:
            self._outbox.send_nowait(Outgoing(data=data, listener=listener, channel=self._drops))
        except anyio.WouldBlock:
            raise DeadlineError("peer.deadline", "the agent does not read its input") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise HangupError("peer.hangup", self.hangup or "the agent closed its input") from None

    # ── sessions ──

    async def start_thread(self, method: str, params: Any, *, listener: Listener, deadline_s: float) -> msgspec.Raw:
        """Open a thread. Only one is opened at a time, so that frames before the reply can be assigned to it."""
        until_s = anyio.current_time() + deadline_s
        with anyio.CancelScope(deadline=until_s) as in_line:
            async with self._starting:
                in_line.deadline = math.inf
                left_s = until_s - anyio.current_time()
                return await self.call(method, params, deadline_s=left_s, listener=listener)
        raise DeadlineError("peer.deadline", f"{method}: other threads were being opened for {deadline_s:g} s")

    def claim_thread(self, thread: str, listener: Listener) -> None:
        """Bind a thread to a listener before it is resumed. Raises RefusedError if it has a session."""
        if not self._threads.claim(thread, listener):
            raise RefusedError("peer.refused", f"thread {thread} has a session already")

    def listeners(self) -> list[Listener]:
        return self._threads.owners()

    def threads_of(self, listener: Listener) -> list[str]:
        """Return the listener's thread, and the threads that its agent started."""
        return self._threads.of(listener)

    def forget(self, listener: Listener) -> None:
        """Detach a listener. Later frames of its threads go to the record of the process."""
        listener.approvals.withdraw_all()
        self._calls.disown(listener)
        self._threads.forget(listener)

    def _taps(self) -> list[Tap]:
        return [self._tap, *(listener.tap for listener in self.listeners())]

    def _tap_of(self, listener: Listener | None) -> Tap:
        return self._tap if listener is None else listener.tap


def _thread_started(reply: Envelope) -> str | None:
    if not isinstance(reply.result, msgspec.Raw):
        return None
    try:
        return decoding.decode(reply.result, wire.ThreadStarted).thread.id
    except (msgspec.DecodeError, RecursionError):
        return None
