"""One channel to one app-server: every line is routed, recorded, and only then acted on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import msgspec
from anyio.abc import TaskGroup

from proctor.clock import Clock
from proctor.errors import DeadlineError, HangupError, PeerError, RefusedError
from proctor.event.row import ChannelClosed, ChildExited, Dir, Seen, StepTaken
from proctor.protocol import jsonrpc
from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter
from proctor.runtime.base import Tap
from proctor.runtime.codex_app_server import policy, wire
from proctor.runtime.codex_app_server.approvals import Desk
from proctor.runtime.codex_app_server.calls import OVERLOAD_PAUSES_S, Calls, Listener
from proctor.runtime.codex_app_server.questions import Asked, read_asked
from proctor.runtime.codex_app_server.route import Envelope, open_envelope
from proctor.runtime.codex_app_server.threads import Threads
from proctor.runtime.complaints import Complaints
from proctor.transport.channel import Channel

EXIT_S = 2.0
STDERR_LINGER_S = 0.5
# One chunk can hold hundreds of questions, and all are answered before the first answer can be sent.
OUTBOX = 4096
# A process that ends closes its channel a moment before.
DROP_S = 0.05
DROPPED = "the connection was lost"
# Replies to these name a thread that did not exist before.
STARTS = frozenset({"thread/start", "thread/fork"})


class Link(Protocol):
    """What may be done when a channel drops and the other end lives."""

    async def reopen(self) -> bool:
        """Whether it is open again."""

    async def rejoin(self, connection: "Connection") -> None:
        """Take up on it what can be taken up, then `resume` the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """On record and not sent yet. `channel` counts the channels there were before the one it is meant for."""

    data: bytes
    listener: Listener | None
    channel: int


class Connection:
    """Carries many sessions. `run` must be running in a task for anything to be heard or said."""

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
        self._desk = Desk(None, tap, clock=clock)
        self._calls = Calls(self._send, pauses_s=pauses_s)
        self._threads = Threads[Listener]()
        self._starting = anyio.Lock(fast_acquire=True)
        self._quiet = anyio.Event()
        self._outbox, self._to_send = anyio.create_memory_object_stream[Outgoing](OUTBOX)
        self._drops = 0

    @property
    def is_usable(self) -> bool:
        """It is open, and the other end owes nobody an answer who has given up waiting for it."""
        return self.hangup is None and self._calls.is_responsive

    # ── tasks ──

    async def run(self) -> None:
        """Hear, say and collect complaints until the channel closes."""
        try:
            async with self._outbox, self._to_send, anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_all)
                tasks.start_soon(self._hear_complaints)
                await self._hear(tasks)
                while self._link is not None and not self.is_closing and await self._came_back(self._link):
                    tasks.start_soon(self._link.rejoin, self)
                    await self._hear(tasks)
                await self._record_end("the agent closed its output")
                self._release()
                # A grandchild may hold stderr open for ever: what arrives soon is enough.
                with anyio.move_on_after(STDERR_LINGER_S):
                    await self._quiet.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._release()
            self.closed.set()

    async def _hear(self, tasks: TaskGroup) -> None:
        splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES)
        while chunk := await self._channel.receive():
            self._take(splitter.feed(chunk), tasks)
        if (torn := splitter.rest()).strip():
            self._take([torn], tasks)

    async def _hear_complaints(self) -> None:
        complaints = Complaints()
        try:
            while chunk := await self._channel.receive_err():
                self._complain(complaints.feed(chunk))
        finally:
            self._complain(complaints.rest())
            self._quiet.set()

    def _complain(self, lines: list[bytes]) -> None:
        for line in lines:
            self._tap.stage(Dir.ERR, line)
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

    async def _came_back(self, link: Link) -> bool:
        """Nothing that was asked on the old channel is answered on the new one."""
        if await self._channel.wait(deadline_s=DROP_S) is not None:
            return False
        self._drops += 1
        self._calls.lose(DROPPED)
        for listener in self.listeners():
            listener.dropped()
        for tap in self._taps():
            tap.release("")
            tap.say(StepTaken(step=DROPPED))
        return await link.reopen()

    def resume(self) -> None:
        """Sessions may speak again."""
        self._calls.reopen()

    def note(self, seen: Seen) -> None:
        self._tap.say(seen)

    def _record_unsent(self, outgoing: Outgoing, *, why: str) -> None:
        """Its row says `out`: this one says that it never was."""
        envelope = open_envelope(outgoing.data)
        detail = {"method": envelope.method, "request": envelope.id, "why": why}
        # Whoever has no thread may be gone by now, and the record closed.
        owner = outgoing.listener if outgoing.listener in self.listeners() else None
        self._tap_of(owner).say(StepTaken(step="not sent", detail=detail))

    async def _record_end(self, cause: str) -> None:
        self.hangup = cause
        for tap in self._taps():
            tap.release("")
            tap.say(ChannelClosed(cause=cause))
        status = await self._channel.wait(deadline_s=EXIT_S)
        if status is not None:
            for tap in self._taps():
                tap.say(ChildExited(code=status.code, signal=status.signal))

    def _release(self) -> None:
        """Whoever waits for the other end waits no longer; by now its end is on their record."""
        self.hangup = self.hangup or "the connection was given up"
        self._calls.hang_up(self.hangup)
        for listener in self.listeners():
            listener.hung_up(self.hangup)

    # ── hearing ──

    def _take(self, lines: list[bytes], tasks: TaskGroup) -> None:
        self.frames_in += len(lines)
        heard: list[tuple[bytes, Envelope, Listener | None]] = []
        touched: dict[int, Tap] = {}
        for line in lines:
            envelope = open_envelope(line)
            listener = self._listener_of(envelope)
            tap = self._tap_of(listener)
            if envelope.ended_streams is not None:
                tap.release(envelope.ended_streams)
            tap.stage(Dir.IN, line, stream=envelope.text_stream)
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
                # What an agent's own helpers do is part of its attempt.
                self._threads.bind(thread, self._threads.owner(envelope.parent_thread))
            elif len(starts := self._calls.unanswered(STARTS)) == 1:
                # Threads start one at a time, so one that nobody knows yet is the one being started.
                self._threads.bind(thread, starts[0].listener)
        return self._threads.owner(thread)

    def _act(self, line: bytes, envelope: Envelope, listener: Listener | None, tasks: TaskGroup) -> None:
        desk = self._desk if listener is None else listener.desk
        if envelope.method is None:
            self._calls.settle(envelope)
        elif envelope.id is not None:
            asked = read_asked(envelope.id, envelope.method, line)
            if (answer := desk.take(asked)) is not None:
                self._reply(asked, answer, listener)
            else:
                # In a task of its own: whoever thinks about it keeps nobody else waiting.
                tasks.start_soon(self._consider, asked, desk, listener)
        else:
            desk.heard(envelope, line)
        if listener is not None:
            listener.heard(envelope)

    async def _consider(self, asked: Asked, desk: Desk, listener: Listener | None) -> None:
        def tell(seen: Seen) -> None:
            # The record of a session that is over may be sealed.
            self._tap_of(listener if listener in self.listeners() else None).say(seen)

        if (answer := await desk.consider(asked, tell=tell)) is not None:
            self._reply(asked, answer, listener)

    def _reply(self, asked: Asked, answer: policy.Answer, listener: Listener | None) -> None:
        if answer.error is None:
            data = jsonrpc.reply(asked.request, answer.result)
        else:
            data = jsonrpc.error_reply(asked.request, policy.METHOD_NOT_FOUND, answer.error)
        try:
            self._send(data, listener)
        except PeerError as error:
            # It asks and does not read, or is gone: our clocks end what waits for the answer.
            detail = {"request": str(asked.request), "why": error.what}
            self._tap_of(listener).say(StepTaken(step="answer not sent", detail=detail))

    # ── saying ──

    async def call(
        self, method: str, params: Any, *, deadline_s: float, listener: Listener | None = None
    ) -> msgspec.Raw:
        """Ask and wait for the reply; while the connection is being opened again, first for that."""
        return await self._calls.call(method, params, deadline_s=deadline_s, listener=listener)

    async def call_while_reopening(
        self, method: str, params: Any, *, deadline_s: float, listener: Listener | None = None
    ) -> msgspec.Raw:
        """The same at once, for what opens it."""
        return await self._calls.call(method, params, deadline_s=deadline_s, listener=listener, is_early=True)

    def notify(self, method: str) -> None:
        self._send(jsonrpc.notification(method), None)

    def _send(self, data: bytes, listener: Listener | None) -> None:
        """On record first, then in the queue."""
        tap = self._tap_of(listener)
        tap.stage(Dir.OUT, data)
        tap.commit()
        try:
            self._outbox.send_nowait(Outgoing(data=data, listener=listener, channel=self._drops))
        except anyio.WouldBlock:
            raise DeadlineError("peer.deadline", "the agent does not read its input") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise HangupError("peer.hangup", self.hangup or "the agent closed its input") from None

    # ── sessions ──

    async def start_thread(self, method: str, params: Any, *, listener: Listener, deadline_s: float) -> msgspec.Raw:
        """One at a time, so that the first frames of a new thread find their owner before the reply names it."""
        until_s = anyio.current_time() + deadline_s
        with anyio.CancelScope(deadline=until_s) as in_line:
            async with self._starting:
                in_line.deadline = math.inf
                left_s = until_s - anyio.current_time()
                return await self.call(method, params, deadline_s=left_s, listener=listener)
        raise DeadlineError("peer.deadline", f"{method}: others before it took {deadline_s:g} s")

    def claim_thread(self, thread: str, listener: Listener) -> None:
        """A thread that is known by name, before it is asked for."""
        if not self._threads.claim(thread, listener):
            raise RefusedError("peer.refused", f"thread {thread} has a session already")

    def listeners(self) -> list[Listener]:
        return self._threads.owners()

    def threads_of(self, listener: Listener) -> list[str]:
        """Its own thread, and those that its agent started."""
        return self._threads.of(listener)

    def forget(self, listener: Listener) -> None:
        """What still comes for this one goes to the process's own record."""
        listener.desk.withdraw_all()
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
        return msgspec.json.decode(reply.result, type=wire.ThreadStarted).thread.id
    except (msgspec.DecodeError, RecursionError):
        return None
