"""A session on one thread of the app-server."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from proctor import decoding
from proctor.clock import Clock
from proctor.contain.identity import ProcessIdentity
from proctor.contain.reap import kill_trees
from proctor.errors import DeadlineError, HangupError, PeerError, RefusedError
from proctor.event.message import Message
from proctor.event.row import StepTaken
from proctor.fact import Fact
from proctor.ids import ThreadId
from proctor.runtime.base import ContextUse, Delivery, SessionRequest, Tap
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.approvals import ApprovalHandler
from proctor.runtime.codex_app_server.calls import Ask
from proctor.runtime.codex_app_server.connection import Connection
from proctor.runtime.codex_app_server.native_items import developer_item, native_items
from proctor.runtime.codex_app_server.open_thread import opening_request
from proctor.runtime.codex_app_server.questions import params_in
from proctor.runtime.codex_app_server.read_thread import StoredThread, read_thread
from proctor.runtime.codex_app_server.route import Envelope
from proctor.runtime.codex_app_server.turns import Turns
from proctor.runtime.delivery import delivery_of, offer_of, receipt_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long to wait for the server."""

    start_s: float = 30.0
    """To open a thread or start a turn."""
    teardown_s: float = 5.0
    """For all requests after a turn together."""
    late_items_s: float = 2.0
    """For the end of commands that are still running after a turn."""
    mcp_s: float = 60.0
    """For MCP servers to start, before a turn."""
    mcp_unheard_s: float = 10.0
    """For the first report about an MCP server of the settings."""
    farewell_s: float = 0.1
    """For each further request after `teardown_s` is used up."""


DEADLINES = Deadlines()
MOST_REFERENCE_BYTES = 4_000
"""The longest value of `additionalContext` that Codex passes on whole: 1,000 tokens of 4 bytes.

Of a longer one it cuts the middle out. It has no limit for all values together (300 of 3,600 bytes each arrived whole,
seen with 0.163).
"""
CLEAN = "thread/backgroundTerminals/clean"

# Why a thread is not resumed on a reopened connection.
LOST = "the connection was lost, and the thread cannot be resumed"
LOST_START = "the connection was lost before it was known which turn had begun"
LOST_END = "the turn ended while the connection was lost"


class CodexSession:
    """Controls one thread by its raw frames. Their meaning is derived from the record by the normalizer."""

    def __init__(
        self,
        connection: Connection,
        request: SessionRequest,
        tap: Tap,
        *,
        clock: Clock,
        marker: str,
        servers: frozenset[str] = frozenset(),
        deadlines: Deadlines = DEADLINES,
    ) -> None:
        self.tap = tap
        self.approvals = ApprovalHandler(request, tap, clock=clock)
        self._connection = connection
        self._request = request
        self._clock = clock
        self._marker = marker
        self._last_message_s = clock.steady_s()
        self._deadlines = deadlines
        self._teardown_left_s = deadlines.teardown_s
        self._thread: ThreadId | None = None
        self._turns = Turns()
        self._servers = _McpServers(servers, unheard_s=deadlines.mcp_unheard_s)
        self._hangup: str | None = None
        self._was_running = self._was_unknown = False  # when the connection dropped
        self._running: set[str] = set()
        self._may_have_processes = False
        self._all_ended = anyio.Event()
        self._is_giving = False
        self._context = ContextUse()
        self._references: Mapping[str, str] = {}

    # ── what the supervisor sees ──

    @property
    def facts(self) -> Mapping[str, Fact]:
        return {}

    @property
    def is_alive(self) -> bool:
        return self._hangup is None

    @property
    def thread(self) -> ThreadId:
        if self._thread is None:
            raise PeerError("peer.wire", "the session has no thread yet")
        return self._thread

    @property
    def last_heard_s(self) -> float:
        return max(self._last_message_s, self.approvals.busy_until_s)

    @property
    def can_signal_codex(self) -> bool:
        # In the sandbox commands have their own pid namespace.
        return self._request.can_leave_sandbox

    async def start(self) -> None:
        method, params = opening_request(self._request)
        # Codex ignores the instructions for an existing thread (seen with 0.163).
        instructions = self._request.instructions if method == "thread/start" else None
        if instructions is not None:
            self.tap.record(offer_of(instructions=instructions))
        if self._request.resume is not None:
            self._connection.claim_thread(self._request.resume, self)
        started = await self._open(method, params)
        if self._request.resume is not None and started.thread.status == wire.Status(type=wire.FAILED):
            # Codex resumes a thread whose last turn failed as it is loaded, with the settings that it was started with
            # (seen with 0.163): a temporary folder, environment and provider of an earlier session.
            for unload in (wire.ARCHIVE, wire.UNARCHIVE):
                params_of = {"threadId": started.thread.id}
                await self._connection.call(unload, params_of, deadline_s=self._deadlines.start_s, listener=self)
            started = await self._open(method, params)
        if started.thread.id not in self._connection.threads_of(self):
            raise PeerError("peer.wire", f"{method}: the server returned a thread that belongs to another session")
        self._thread = ThreadId(started.thread.id)
        if instructions is not None:
            self.tap.record(receipt_of(instructions=instructions))
        if self._request.history:
            await self.give(self._request.history)

    async def _open(self, method: str, params: dict[str, Any]) -> wire.ThreadStarted:
        deadline_s = self._deadlines.start_s
        reply = await self._connection.start_thread(method, params, listener=self, deadline_s=deadline_s)
        try:
            return decoding.decode(reply, wire.ThreadStarted)
        except msgspec.DecodeError as error:
            raise PeerError("peer.wire", f"{method}: {error}") from error

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        params: dict[str, Any] = {"threadId": self.thread, "input": _input(prompt)}
        if output_schema is not None:
            params["outputSchema"] = output_schema
        references, self._references = self._references, {}
        if references:
            params["additionalContext"] = {
                key: {"kind": "untrusted", "value": references[key]} for key in sorted(references)
            }
        # A turn that begins earlier may not have the servers' tools.
        with anyio.move_on_after(self._deadlines.mcp_s) as waiting:
            await self._servers.wait()
        if waiting.cancelled_caught:
            detail = {"servers": sorted(self._servers.starting), "waitedS": self._deadlines.mcp_s}
            self.tap.record(StepTaken(step="turn begun before MCP servers were ready", detail=detail))
        await self._take_turn(wire.START_TURN, params)

    async def compact(self) -> None:
        await self._take_turn(wire.COMPACT, {"threadId": self.thread})

    async def give(self, messages: Sequence[Message], *, instructions: str | None = None) -> Delivery:
        """Add items to the thread. Codex takes all items of a request or none."""
        if self._turns.is_running or self._is_giving:
            # Codex would add the items to the running turn.
            what = "messages are being given" if self._is_giving else "a turn is running"
            raise RefusedError("peer.refused", f"{wire.GIVE}: {what}")
        if self._hangup is not None:
            raise self._gone()
        conversion = native_items(messages)
        items = [item.value for item in conversion.items]
        items += [] if instructions is None else [developer_item(instructions)]
        if items:
            self.tap.record(offer_of(conversion, instructions=instructions))
            await self.inject(items)
            self.tap.record(receipt_of(conversion, instructions=instructions))
        return delivery_of(conversion)

    def refer(self, references: Mapping[str, str]) -> None:
        self._references = references

    async def steer(self, text: str) -> None:
        if not self._turns.is_running:
            raise RefusedError("peer.refused", "turn/steer: no turn runs")
        with anyio.move_on_after(self._deadlines.start_s):
            await self._turns.known.wait()
        params = {"threadId": self.thread, "expectedTurnId": self._turns.current, "input": _input(text)}
        await self._connection.call("turn/steer", params, deadline_s=self._deadlines.start_s, listener=self)

    async def read(self) -> StoredThread:
        """Return what the server stores of a persistent thread. Raises RefusedError if it stores nothing."""

        async def call(method: str, params: Mapping[str, Any]) -> bytes:
            return await self._connection.call(method, params, deadline_s=self._deadlines.start_s, listener=self)

        return await read_thread(self.thread, call)

    async def read_history(self) -> None:
        await self.read()

    async def read_context(self) -> ContextUse:
        """Return what the server reported last. It reports by itself, also after a compaction or a resume."""
        return self._context

    async def interrupt(self) -> None:
        if not self._turns.is_running:
            return
        self._turns.is_halted = True
        self._may_have_processes = True  # Codex may just be starting a command that it has not reported
        # The turn may be requested and its id not known yet.
        await self._wait(self._turns.known)
        # Without an id, the server interrupts the running turn (seen with 0.163).
        await self._try("turn/interrupt", {"threadId": self.thread, "turnId": self._turns.current or ""})
        await self._wait(self._turns.over)

    async def settle(self) -> None:
        """End background terminals: the shell of an interrupted or yielded command outlives its turn.

        Then kill the processes that Codex left. It ends the sandbox of a command that is interrupted before its
        `item/started`, but the shell inside, if it is just being started, survives (seen with 0.163). No frame reports
        it, and no later request lists or ends it.
        """
        for thread in self._connection.threads_of(self):
            await self._try(CLEAN, {"threadId": thread})
        # The end of a command that was never allowed to start is not reported.
        if self._running - self.approvals.withdrawn:
            await self._wait(self._all_ended, at_most_s=self._deadlines.late_items_s)
        if self._may_have_processes:
            await self._kill_processes()

    async def close(self) -> None:
        if self._turns.is_running and not self._turns.is_halted:
            # Otherwise the turn would continue without a session.
            await self.interrupt()
            await self.settle()
        if self._thread is not None:
            await self._try("thread/unsubscribe", {"threadId": self.thread})

    async def inject(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Add items to the thread, all or none. Raises RefusedError if the server finds one invalid."""
        self._is_giving = True
        params = {"threadId": self.thread, "items": items}
        try:
            await self._connection.call(wire.GIVE, params, deadline_s=self._deadlines.start_s, listener=self)
        except PeerError as error:
            if not isinstance(error, DeadlineError | HangupError):
                self.tap.record(receipt_of(problem=error.what))
            raise
        finally:
            self._is_giving = False

    async def _take_turn(self, method: str, params: dict[str, Any]) -> None:
        """Request a turn and wait until it is over."""
        if self._is_giving:
            raise RefusedError("peer.refused", f"{method}: messages are being given")
        if self._turns.is_running:
            # The server would add the prompt to the running turn.
            raise RefusedError("peer.refused", f"{method}: a turn is already running")
        if self._hangup is not None:
            raise self._gone()
        self._turns.expect()
        self._teardown_left_s = self._deadlines.teardown_s
        try:
            reply = await self._connection.call(method, params, deadline_s=self._deadlines.start_s, listener=self)
        except PeerError as error:
            if not isinstance(error, DeadlineError | HangupError):
                self._turns.give_up()
            raise
        with suppress(msgspec.DecodeError):
            self._turns.began(decoding.decode(reply, wire.TurnParams).turn.id)
        await self._turns.over.wait()
        if self._turns.is_cut_off:
            raise self._gone()

    def _gone(self) -> HangupError:
        return HangupError("peer.hangup", self._hangup or "the channel closed")

    # ── waits after a turn, with one deadline for all of them ──

    async def _try(self, method: str, params: dict[str, str]) -> None:
        """Send a request and ignore its failure, which is recorded."""
        with self._teardown_budget() as left_s, suppress(PeerError):
            await self._connection.call(method, params, deadline_s=left_s, listener=self)

    async def _wait(self, event: anyio.Event, *, at_most_s: float = float("inf")) -> None:
        with self._teardown_budget() as left_s, anyio.move_on_after(min(left_s, at_most_s)):
            await event.wait()

    async def _kill_processes(self) -> None:
        """Kill all processes of this attempt in the server. A later turn does not need them."""
        spawns: dict[str, list[ProcessIdentity]] = {self._marker: []}
        with self._teardown_budget() as left_s:
            kill = partial(kill_trees, spawns, attempt=self._request.attempt, timeout_s=left_s)
            deaths = await anyio.to_thread.run_sync(kill)
        if pids := deaths.killed.get(self._marker):
            detail = {"pids": list(pids), "survived": bool(deaths.survived)}
            self.tap.record(StepTaken(step="processes killed after the turn", detail=detail))

    @contextmanager
    def _teardown_budget(self) -> Iterator[float]:
        began_s = anyio.current_time()
        try:
            yield max(self._teardown_left_s, self._deadlines.farewell_s)
        finally:
            self._teardown_left_s -= anyio.current_time() - began_s

    # ── called by the connection ──

    def on_message(self, envelope: Envelope, line: bytes) -> None:
        self._last_message_s = self._clock.steady_s()
        is_own = envelope.thread == self._thread
        match envelope.method:
            case "turn/started" if is_own and envelope.turn is not None:
                self._turns.began(envelope.turn)
            case "turn/completed" if is_own and envelope.turn is not None:
                self._turns.ended(envelope.turn)
            case wire.USAGE if is_own or self._thread is None:
                self._context = context_use(line) or self._context
            case wire.MCP_STATUS if is_own or self._thread is None:
                params = params_in(line)
                self._servers.update(params.get("name"), params.get("status"))
            case "item/started" if envelope.item_type == "commandExecution" and envelope.item:
                self._running.add(envelope.item)
                self._may_have_processes = True
                self._all_ended = anyio.Event()
            case "item/completed" if envelope.item in self._running:
                self._running.discard(envelope.item)
                if not self._running:
                    self._all_ended.set()

    def on_hangup(self, cause: str) -> None:
        self._hangup = cause
        self._servers.give_up()
        self.approvals.withdraw_all()
        self._turns.cut_off()
        self._all_ended.set()

    @property
    def is_gone(self) -> bool:
        return self._hangup is not None

    def on_connection_lost(self) -> None:
        self.approvals.withdraw_all()
        self._was_running = self._turns.is_running
        self._was_unknown = self._was_running and self._turns.current is None

    async def rejoin(self, ask: Ask) -> str | None:
        if self._thread is None:
            return None  # the thread is not requested yet
        try:
            if self._is_kept and not self._was_unknown:
                again = {"threadId": self.thread, "excludeTurns": True}
                reply = await ask("thread/resume", again, deadline_s=self._deadlines.start_s, listener=self)
                status = decoding.decode(reply, wire.ThreadStarted).thread.status
                is_active = status is not None and status.type == "active"
                return LOST_END if self._was_running and self._turns.is_running and not is_active else None
            if self._was_running:
                # Otherwise the turn would continue without a session.
                halt = {"threadId": self.thread, "turnId": self._turns.current or ""}
                await ask("turn/interrupt", halt, deadline_s=self._deadlines.teardown_s, listener=self)
                clean = {"threadId": self.thread}
                await ask(CLEAN, clean, deadline_s=self._deadlines.teardown_s, listener=self)
        except (RefusedError, DeadlineError, msgspec.DecodeError) as error:
            return f"{LOST}: {error}"
        return LOST_START if self._was_unknown else LOST

    @property
    def _is_kept(self) -> bool:
        """Whether the server stores the thread, so that it can be resumed."""
        return self._request.is_persistent or self._request.resume is not None


class _McpServers:
    """Which MCP servers of the thread are still starting. `expected` are those of the settings."""

    def __init__(self, expected: frozenset[str], *, unheard_s: float) -> None:
        self.starting: set[str] = set()
        # Codex reports that a server starts only after it has replied to the request for the thread (seen with 0.163).
        self._unheard = set(expected)
        self._unheard_s = unheard_s
        self._changed = anyio.Event()

    def update(self, name: Any, status: Any) -> None:
        if not isinstance(name, str):
            return
        self._unheard.discard(name)
        if status == "starting":
            self.starting.add(name)
        else:
            self.starting.discard(name)
        self._wake()

    def give_up(self) -> None:
        self.starting.clear()
        self._unheard.clear()
        self._wake()

    async def wait(self) -> None:
        """Return when no server is starting."""
        with anyio.move_on_after(self._unheard_s):
            while self._unheard:
                await self._changed.wait()
        self._unheard.clear()
        while self.starting:
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def context_use(line: bytes) -> ContextUse | None:
    """Return what a report of usage says about the context window. None if its shape is unknown.

    The size of Codex's own prompt is in no report: the first request's input includes the first prompt.

    >>> total = '"totalTokens":9,"inputTokens":7,"outputTokens":2'
    >>> usage = f'{{"total":{{{total}}},"last":{{{total}}},"modelContextWindow":100}}'
    >>> use = context_use(f'{{"params":{{"tokenUsage":{usage}}}}}'.encode())
    >>> use.window_tokens, use.used_tokens, use.fixed_prompt_tokens
    (100, 9, None)
    """
    try:
        usage = decoding.decode(line, wire.UsageNotification).params.token_usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    used = None if usage.last is None else usage.last.total_tokens
    return ContextUse(window_tokens=usage.model_context_window or None, used_tokens=used)


def _input(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
