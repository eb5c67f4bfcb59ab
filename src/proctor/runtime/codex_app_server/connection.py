"""One channel to one app-server: every line is routed, recorded, and only then acted on."""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import anyio
import msgspec

from proctor.clock import Clock
from proctor.errors import DeadlineError, HangupError, PeerError
from proctor.event.row import Answered, ChannelClosed, ChildExited, Dir, StepTaken
from proctor.protocol import jsonrpc
from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter
from proctor.runtime.base import Tap
from proctor.runtime.codex_app_server import policy, wire
from proctor.runtime.codex_app_server.calls import OVERLOAD_PAUSES_S, Calls, Listener
from proctor.runtime.codex_app_server.route import Envelope, open_envelope
from proctor.spec.model import Approvals
from proctor.transport.process import ExitStatus

EXIT_S = 2.0
STDERR_LINGER_S = 0.5
# One chunk can hold hundreds of questions, and all are answered before the first answer can be sent.
OUTBOX = 4096


class Channel(Protocol):
    """The other end, as far as a connection needs it: a process, or its twin in memory."""

    async def receive(self) -> bytes:
        """The next bytes it says, empty at the end."""

    async def receive_err(self) -> bytes:
        """The next bytes it complains with, empty at the end."""

    async def send(self, data: bytes) -> None:
        """Write all of it. HangupError where nobody reads."""

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        """How it ended, if it has within the deadline."""


class Connection:
    """Carries many sessions. `run` must be running in a task for anything to be heard or said."""

    def __init__(
        self, channel: Channel, tap: Tap, *, clock: Clock, pauses_s: Sequence[float] = OVERLOAD_PAUSES_S
    ) -> None:
        self.frames_in = 0
        self.hangup: str | None = None
        self.closed = anyio.Event()
        self._channel = channel
        self._tap = tap
        self._clock = clock
        self._calls = Calls(self._send, pauses_s=pauses_s)
        self._threads: dict[str, Listener] = {}
        # Threads that are nobody's any more, so that no newcomer is taken for their owner.
        self._past: set[str] = set()
        self._starting = anyio.Lock()
        self._quiet = anyio.Event()
        self._outbox, self._to_send = anyio.create_memory_object_stream[bytes](OUTBOX)

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
                await self._hear()
                await self._record_end("the agent closed its output")
                self._release()
                # A grandchild may hold stderr open for ever: what arrives soon is enough.
                with anyio.move_on_after(STDERR_LINGER_S):
                    await self._quiet.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._release()
            self.closed.set()

    async def _hear(self) -> None:
        splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES)
        while chunk := await self._channel.receive():
            self._take(splitter.feed(chunk))
        if (torn := splitter.rest()).strip():
            self._take([torn])

    async def _hear_complaints(self) -> None:
        splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES)
        while chunk := await self._channel.receive_err():
            for line in splitter.feed(chunk):
                self._tap.stage(Dir.ERR, line)
            self._tap.commit()
        if (torn := splitter.rest()).strip():
            self._tap.stage(Dir.ERR, torn)
            self._tap.commit()
        self._quiet.set()

    async def _send_all(self) -> None:
        async for data in self._to_send:
            try:
                await self._channel.send(data)
            except HangupError:
                return

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
        for listener in self._bound():
            listener.hung_up()

    # ── hearing ──

    def _take(self, lines: list[bytes]) -> None:
        self.frames_in += len(lines)
        heard: list[tuple[Envelope, Listener | None]] = []
        touched: dict[int, Tap] = {}
        for line in lines:
            envelope = open_envelope(line)
            listener = self._listener_of(envelope)
            tap = self._tap_of(listener)
            if envelope.ended_streams is not None:
                tap.release(envelope.ended_streams)
            tap.stage(Dir.IN, line, stream=envelope.text_stream)
            touched[id(tap)] = tap
            heard.append((envelope, listener))
        for tap in touched.values():
            tap.commit()
        for envelope, listener in heard:
            self._act(envelope, listener)

    def _listener_of(self, envelope: Envelope) -> Listener | None:
        if envelope.method is None:
            pending = self._calls.waiting_for(envelope)
            if pending is not None and pending.method == "thread/start":
                self._bind(_thread_started(envelope), pending.listener)
            return None if pending is None else pending.listener
        thread = envelope.thread
        if thread is None:
            return None
        if thread not in self._threads:
            if envelope.parent_thread is not None:
                # What an agent's own helpers do is part of its attempt.
                self._bind(thread, self._threads.get(envelope.parent_thread))
            elif len(starts := self._calls.unanswered("thread/start")) == 1:
                # Threads start one at a time, so one that nobody knows yet is the one being started.
                self._bind(thread, starts[0].listener)
        return self._threads.get(thread)

    def _bind(self, thread: str | None, listener: Listener | None) -> None:
        if thread is None or thread in self._threads:
            return
        if listener is None:
            self._past.add(thread)
        elif thread not in self._past:
            self._threads[thread] = listener

    def _act(self, envelope: Envelope, listener: Listener | None) -> None:
        if envelope.method is None:
            self._calls.settle(envelope)
        elif envelope.id is not None:
            self._answer(envelope.method, envelope.id, listener)
        if listener is not None:
            listener.heard(envelope)

    def _answer(self, method: str, request: jsonrpc.RequestId, listener: Listener | None) -> None:
        approvals = Approvals.DENY if listener is None else listener.approvals
        tap = self._tap_of(listener)
        answer = policy.answer(method, approvals, now_s=self._clock.wall_ms() // 1000)
        tap.say(Answered(request=str(request), method=method, decision=answer.decision, by="policy"))
        if answer.error is None:
            data = jsonrpc.reply(request, answer.result)
        else:
            data = jsonrpc.error_reply(request, policy.METHOD_NOT_FOUND, answer.error)
        try:
            self._send(data, listener)
        except PeerError as error:
            # It asks and does not read, or is gone: our clocks end what waits for the answer.
            tap.say(StepTaken(step="answer not sent", detail={"request": str(request), "why": error.what}))

    # ── saying ──

    async def call(
        self, method: str, params: Any, *, deadline_s: float, listener: Listener | None = None
    ) -> msgspec.Raw:
        """Ask and wait for the reply."""
        return await self._calls.call(method, params, deadline_s=deadline_s, listener=listener)

    def notify(self, method: str) -> None:
        self._send(jsonrpc.notification(method), None)

    def _send(self, data: bytes, listener: Listener | None) -> None:
        """On record first, then in the queue."""
        tap = self._tap_of(listener)
        tap.stage(Dir.OUT, data)
        tap.commit()
        try:
            self._outbox.send_nowait(data + b"\n")
        except anyio.WouldBlock:
            raise DeadlineError("peer.deadline", "the agent does not read its input") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise HangupError("peer.hangup", self.hangup or "the agent closed its input") from None

    # ── sessions ──

    async def start_thread(self, params: Any, *, listener: Listener, deadline_s: float) -> msgspec.Raw:
        """thread/start, one at a time, so that its first frames find their owner before its reply names the thread."""
        until_s = anyio.current_time() + deadline_s
        with anyio.CancelScope(deadline=until_s) as in_line:
            async with self._starting:
                in_line.deadline = math.inf
                left_s = until_s - anyio.current_time()
                return await self.call("thread/start", params, deadline_s=left_s, listener=listener)
        raise DeadlineError("peer.deadline", f"thread/start: others before it took {deadline_s:g} s")

    def threads_of(self, listener: Listener) -> list[str]:
        """Its own thread, and those that its agent started."""
        return [thread for thread, owner in self._threads.items() if owner is listener]

    def forget(self, listener: Listener) -> None:
        """What still comes for this one goes to the process's own record."""
        self._calls.disown(listener)
        for thread in self.threads_of(listener):
            del self._threads[thread]
            self._past.add(thread)

    def _bound(self) -> list[Listener]:
        # A session may have more than one thread.
        return list(dict.fromkeys(self._threads.values()))

    def _taps(self) -> list[Tap]:
        return [self._tap, *(listener.tap for listener in self._bound())]

    def _tap_of(self, listener: Listener | None) -> Tap:
        return self._tap if listener is None else listener.tap


def _thread_started(reply: Envelope) -> str | None:
    if not isinstance(reply.result, msgspec.Raw):
        return None
    try:
        return msgspec.json.decode(reply.result, type=wire.ThreadStarted).thread.id
    except (msgspec.DecodeError, RecursionError):
        return None
