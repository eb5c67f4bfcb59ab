"""One thread of the app-server: a prompt, a turn, an interrupt, and nothing left running afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import anyio
import msgspec

from proctor.clock import Clock
from proctor.errors import DeadlineError, HangupError, PeerError
from proctor.ids import ThreadId
from proctor.runtime.base import SessionAsk, Tap
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.connection import Connection
from proctor.runtime.codex_app_server.home import thread_params
from proctor.runtime.codex_app_server.route import Envelope
from proctor.spec.model import Approvals


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long the server may take: to start a thread or a turn, and for all that is asked after a turn together.

    `farewell_s` is what each further request gets when that is used up: it is still said, but hardly waited for.
    """

    start_s: float = 30.0
    teardown_s: float = 5.0
    late_items_s: float = 2.0
    farewell_s: float = 0.1


DEADLINES = Deadlines()


class CodexSession:
    """Control runs on raw frames and acts only through the connection; what it means is folded from the record."""

    def __init__(
        self, connection: Connection, ask: SessionAsk, tap: Tap, *, clock: Clock, deadlines: Deadlines = DEADLINES
    ) -> None:
        self.tap = tap
        self.last_heard_s = clock.steady_s()
        self._connection = connection
        self._ask = ask
        self._clock = clock
        self._deadlines = deadlines
        self._patience_s = deadlines.teardown_s
        self._thread: ThreadId | None = None
        self._turn: str | None = None
        self._turn_known = anyio.Event()
        self._turn_over = anyio.Event()
        self._turn_over.set()
        self._past: set[str] = set()
        self._is_cut_off = False
        self._running: set[str] = set()
        self._all_ended = anyio.Event()

    # ── what the supervisor sees ──

    @property
    def approvals(self) -> Approvals:
        return self._ask.approvals

    @property
    def session_id(self) -> str:
        return f"{self._ask.attempt}/{self.thread}"

    @property
    def thread(self) -> ThreadId:
        if self._thread is None:
            raise PeerError("peer.wire", "the session has no thread yet")
        return self._thread

    async def start(self) -> None:
        params = thread_params(self._ask)
        reply = await self._connection.start_thread(params, listener=self, deadline_s=self._deadlines.start_s)
        try:
            started = msgspec.json.decode(reply, type=wire.ThreadStarted)
        except msgspec.DecodeError as error:
            raise PeerError("peer.wire", f"thread/start: {error}") from error
        if started.thread.id not in self._connection.threads_of(self):
            raise PeerError("peer.wire", "thread/start: the server gave a thread that was given before")
        self._thread = ThreadId(started.thread.id)

    async def turn(self, prompt: str) -> None:
        if self._turn is not None:
            self._past.add(self._turn)
        self._turn, self._turn_known, self._turn_over = None, anyio.Event(), anyio.Event()
        self._patience_s = self._deadlines.teardown_s
        params = {"threadId": self.thread, "input": [{"type": "text", "text": prompt}]}
        try:
            reply = await self._connection.call("turn/start", params, deadline_s=self._deadlines.start_s, listener=self)
        except PeerError as error:
            if not isinstance(error, DeadlineError):
                self._turn_over.set()  # it was not begun
            raise
        with suppress(msgspec.DecodeError):
            self._began(msgspec.json.decode(reply, type=wire.TurnParams).turn.id)
        await self._turn_over.wait()
        if self._is_cut_off:
            raise HangupError("peer.hangup", self._connection.hangup or "the channel closed")

    async def interrupt(self) -> None:
        if self._turn_over.is_set():
            return
        # The turn may have been asked for and its id not be known yet.
        await self._wait(self._turn_known)
        if self._turn is not None:
            await self._try("turn/interrupt", {"threadId": self.thread, "turnId": self._turn})
            await self._wait(self._turn_over)

    async def settle(self) -> None:
        """The shell of an interrupted or yielded command runs on until it is cleaned, turn or no turn."""
        for thread in self._connection.threads_of(self):
            await self._try("thread/backgroundTerminals/clean", {"threadId": thread})
        if self._running:
            await self._wait(self._all_ended, at_most_s=self._deadlines.late_items_s)

    async def close(self) -> None:
        if self._thread is not None:
            await self._try("thread/unsubscribe", {"threadId": self.thread})

    # ── waiting after a turn, all of it out of one purse ──

    async def _try(self, method: str, params: dict[str, str]) -> None:
        """A call whose refusal changes nothing: the reply, or that there was none, is on record."""
        with self._spending() as left_s, suppress(PeerError):
            await self._connection.call(method, params, deadline_s=left_s, listener=self)

    async def _wait(self, event: anyio.Event, *, at_most_s: float = float("inf")) -> None:
        with self._spending() as left_s, anyio.move_on_after(min(left_s, at_most_s)):
            await event.wait()

    @contextmanager
    def _spending(self) -> Iterator[float]:
        began_s = anyio.current_time()
        try:
            yield max(self._patience_s, self._deadlines.farewell_s)
        finally:
            self._patience_s -= anyio.current_time() - began_s

    # ── what the connection tells ──

    def heard(self, envelope: Envelope) -> None:
        self.last_heard_s = self._clock.steady_s()
        match envelope.method:
            case "turn/started" | "turn/completed" if envelope.thread == self._thread and envelope.turn is not None:
                self._began(envelope.turn)
                if envelope.method == "turn/completed" and envelope.turn == self._turn:
                    self._turn_over.set()
            case "item/started" if envelope.item_type == "commandExecution" and envelope.item:
                self._running.add(envelope.item)
                self._all_ended = anyio.Event()
            case "item/completed" if envelope.item in self._running:
                self._running.discard(envelope.item)
                if not self._running:
                    self._all_ended.set()

    def _began(self, turn: str) -> None:
        # A frame of an earlier turn may come late, or twice.
        if self._turn is None and turn not in self._past:
            self._turn = turn
            self._turn_known.set()

    def hung_up(self) -> None:
        # A turn that had ended before is not cut off, though whoever waits for it may not have looked yet.
        self._is_cut_off = self._is_cut_off or not self._turn_over.is_set()
        self._turn_known.set()
        self._turn_over.set()
        self._all_ended.set()
