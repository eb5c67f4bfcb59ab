"""A conversation: a session of many turns, with the same clocks and the same record as an attempt."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from proctor.attempt.kept_turns import KeptTurns
from proctor.attempt.stream import EventStream, OffsetEvent
from proctor.attempt.supervision import Supervision
from proctor.attempt.turn import TEARDOWN_S, take_turn
from proctor.attempt.watchdog import ClockExpiry, LimitExceeded, Stop
from proctor.context.compaction import Compaction, native_compaction, with_native
from proctor.context.engine import CompactStatus
from proctor.context.keeper import SessionKeeper
from proctor.context.model import SessionTurn, TurnContext
from proctor.errors import InputError, ProctorError
from proctor.errors.arguments import ArgumentChecker
from proctor.event.model import CompactionEnded, Event, TextSaid, TurnAsked
from proctor.event.outcome import NOT_ENDED, Ending, Outcome, limit_text
from proctor.event.row import CancelRequested, SteerTaken, TurnClosed, TurnWanted
from proctor.ids import AttemptId, SessionKey, ThreadId
from proctor.runtime.capability import require_capability


class Turn:
    """A turn. Iterate over it for its events, await it for how it ended. Both raise the error that broke the record."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._first_offset = stream.offset
        self._last_offset: int | None = None
        self._ending = NOT_ENDED
        self._failure: ProctorError | None = None
        self._context: TurnContext | None = None
        self._over = anyio.Event()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    def __await__(self) -> Generator[Any, None, Ending]:
        return self._wait().__await__()

    async def _events(self) -> AsyncIterator[Event]:
        async for _, event in self._stream.after(self._first_offset, end=lambda: self._last_offset):
            yield event
        await self._wait()

    async def _wait(self) -> Ending:
        await self._over.wait()
        if self._failure is not None:
            raise self._failure
        return self._ending

    @property
    def context(self) -> TurnContext | None:
        """What the context engine did for the turn. None before its end, or if the session has no engine."""
        return self._context

    def conclude(self, ending: Ending, failure: ProctorError | None, context: TurnContext | None) -> None:
        """End the turn. Called once, by the session."""
        self._last_offset, self._ending, self._failure = self._stream.offset, ending, failure
        self._context = context
        self._over.set()
        self._stream.wake()


@dataclass(slots=True, kw_only=True)
class _Work:
    """The turn that the session runs or will run next."""

    do: Callable[[], Awaitable[None]]
    """Runs the turn, and returns when it has ended."""
    turn: Turn
    stop: anyio.Event = field(default_factory=anyio.Event)
    """Set to stop the turn."""
    why: str = "asked to stop"
    """Why the turn is stopped, for the record."""


class LiveSession:
    """An open conversation with an agent.

    One turn runs at a time, in the session's own task: it continues if no reader is connected, and ends with the
    session. Events are read from the record by offset, so there may be several readers, and one that reconnects misses
    nothing.
    """

    def __init__(
        self,
        supervision: Supervision,
        *,
        folder: Path | None,
        stream: EventStream,
        turns: KeptTurns | None,
    ) -> None:
        """`turns` keeps its turns. None if the session has no id."""
        self.workspace = supervision.workspace.root
        """The folder in which the agent works."""
        self.folder = folder
        """The evidence folder. None if the record is not on disk."""
        self.answer: str | None = None
        """The last text that the agent said in the current or last turn. None if it said nothing."""
        self.failure: ProctorError | None = None
        """Why the record could not be written. None if it could."""
        self._supervision = supervision
        self._request = supervision.request
        self._stream = stream
        self._turns = turns
        self._keeper = None if turns is None else turns.keeper
        self._lifecycle = None if turns is None else turns.lifecycle
        self._compaction: CompactionEnded | None = None
        self._work: _Work | None = None
        self._wake = anyio.Event()
        # Why the session has ended or is ending; None while it accepts turns.
        self._over: str | None = None
        self._done = anyio.Event()
        self._scope = anyio.CancelScope(shield=True)

    # ── for the user ──

    @property
    def id(self) -> AttemptId:
        return self._request.attempt_id

    @property
    def key(self) -> SessionKey | None:
        """The id with which the session can be opened again. None if it has none."""
        return None if self._keeper is None else self._keeper.key

    @property
    def turns(self) -> tuple[SessionTurn, ...]:
        """All turns of a session with an id, oldest first, also those of earlier sittings.

        Raises InputError for a session without an id: only its events are kept.
        """
        return self._kept().turns()

    @property
    def thread(self) -> ThreadId | None:
        """The agent's own id for the conversation, with which a persistent one is resumed. None until it is known."""
        session = self._supervision.session
        if session is not None and session.thread is not None:
            return session.thread
        # Some agents name a thread that they continue only with its next turn. A fork is bound to that of its origin.
        binding = None if self._keeper is None else self._keeper.binding
        return None if binding is None or binding.is_fork else binding.thread

    @property
    def offset(self) -> int:
        """Offset of the last event so far; 0 before the first."""
        return self._stream.offset

    @property
    def ending(self) -> Ending:
        """How the last turn ended: its outcome, code and detail. `NOT_ENDED` while a turn runs or before the first."""
        return NOT_ENDED if self._work is not None else self._supervision.recording.derivation.ending

    @property
    def outcome(self) -> Outcome:
        """The outcome of the last turn."""
        return self.ending.outcome

    def say(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> Turn:
        """Start a turn and return it at once.

        Raises InputError if a turn is running or the session has ended, and RefusedError if `output_schema` is not
        supported by the runtime.
        """
        check = ArgumentChecker("say")
        check.prompt("prompt", prompt)
        check.mapping("output_schema", output_schema)
        self._ready()
        if output_schema is not None:
            self._require("structured_output")
        return self._begin(partial(self._ask, prompt, output_schema), text=prompt)

    async def steer(self, text: str) -> None:
        """Send a text into the running turn.

        Raises InputError if no turn is running, and RefusedError if the agent refuses the text.
        """
        ArgumentChecker("steer").prompt("text", text)
        session = self._supervision.session
        if self._work is None or session is None:
            raise InputError("session.idle", "no turn is running, so there is nothing to steer")
        self._require("turn_steer")
        await session.steer(text)
        self._supervision.tap.record(SteerTaken(text=text))

    async def interrupt(self) -> None:
        """End the running turn as cancelled, with every process it started, and wait for its end.

        Has no effect if no turn is running.
        """
        if self._work is not None:
            work = self._work
            work.why = "interrupted by the caller"
            work.stop.set()
            await work.turn

    async def compact(self, *, focus: str | None = None) -> Compaction:
        """Shorten the context, and return what that achieved. Raises like `say`.

        If the session's context engine owns the compaction, it shortens its own context, with attention to `focus`, and
        then the agent's own compaction runs too, whose failure fails nothing. Otherwise only the agent's own runs, in a
        separate turn, and `focus` has no effect.
        """
        ArgumentChecker("compact").text("focus", focus, is_optional=True)
        self._ready()
        compacted = None if self._lifecycle is None else await self._lifecycle.compact(focus=focus)
        if compacted is None:
            self._require("compaction")
            return await self._compact_natively()
        is_aborted = compacted.status is CompactStatus.ABORTED
        if is_aborted or not self._request.runtime.capabilities.compaction or self.thread is None:
            return compacted
        native = await self._compact_natively()
        return with_native(compacted, native, runtime_id=self._request.runtime.id)

    async def _compact_natively(self) -> Compaction:
        if self.thread is None:
            return Compaction(status=CompactStatus.NOT_NEEDED, reason="the session has no native thread yet")
        self._compaction = None
        ending = await self._begin(self._compact_thread, text=None)
        return native_compaction(ending, self._compaction)

    async def _compact_thread(self) -> None:
        session = self._supervision.session
        if session is None and self._lifecycle is not None:
            session = await self._lifecycle.resume_thread()
        if session is not None:
            await session.compact()

    async def reset(self) -> None:
        """Begin a new history, and end this session: open it again to continue with nothing said before.

        Earlier turns stay in the mirror. Raises InputError if a turn is running, or if the session has no id.
        """
        self._ready()
        if self._lifecycle is not None:
            await self._lifecycle.forget("reset")
        context = self._request.context
        await self._kept().reset(engine=None if context is None else context.engine)
        self._over = "it was reset; open it again"
        self._wake.set()

    async def fork(self, new_id: str) -> None:
        """Copy the session under another id. Each then continues without the other.

        Raises InputError if a turn is running, if the session has no id, or if the new id is taken or invalid.
        """
        ArgumentChecker("fork").text("new_id", new_id)
        self._ready()
        await self._kept().fork(new_id, clock=self._request.clock)

    def events(self, *, after: int = 0) -> AsyncIterator[OffsetEvent]:
        """Iterate over the events after an offset, then over new ones, until the session ends.

        Raises InputError for an offset that does not exist yet or is no longer stored.
        """
        ArgumentChecker("events").instance("after", after, int, expected="an offset")
        return self._stream.after(after)

    # ── for the supervisor ──

    async def live(self) -> None:
        """Run turns until the session is closed, its attempt clock or another limit is reached, or the agent is gone.

        Between turns the clocks run too, but silence does not count as a stall.
        """
        try:
            # Shielded, so that the turn of a cancelled caller is recorded as cancelled. `close` ends this loop.
            with self._scope:
                if self._lifecycle is not None:
                    await self._lifecycle.open()
                while self._over is None:
                    await self._watched(self._wake.wait, stop=anyio.Event())
                    if (work := self._work) is not None:
                        if self._over is None:
                            await self._watched(work.do, stop=work.stop)
                        await self._settle(work)
        finally:
            self._over = self._over or "the session was closed"
            self._done.set()

    async def close(self, *, why: str | None = None) -> None:
        """Stop a running turn as cancelled, accept no more turns, and wait for the end, at most 2 × TEARDOWN_S.

        `why` is the reason if the session is closed by something other than its user. It is recorded as a cancellation
        if no turn has ended yet.
        """
        is_cut_off = why is not None and self._over is None
        reason = why or "the session was closed"
        self._over = self._over or reason
        if self._work is not None and not self._work.stop.is_set():
            self._work.why = reason
            self._work.stop.set()
        elif is_cut_off and self.ending is NOT_ENDED:
            self._supervision.tap.record(CancelRequested(why=reason))
        self._wake.set()
        with anyio.move_on_after(2 * TEARDOWN_S):
            await self._done.wait()
        self._scope.cancel()

    def yield_turn(self, why: str) -> None:
        """Stop the running turn for this reason. Does not wait for its end."""
        if self._work is not None:
            self._work.why = why
            self._work.stop.set()

    def event_recorded(self, event: Event) -> None:
        """Take a recorded event: remember the answer, and publish it to readers."""
        if isinstance(event, TurnAsked):
            self.answer = None
        elif isinstance(event, TextSaid):
            self.answer = event.text
        elif isinstance(event, CompactionEnded):
            self._compaction = event
        if self._turns is not None:
            self._turns.feed(event)
        self._stream.publish(event)

    def _require(self, capability: str) -> None:
        require_capability(self._request.runtime.capabilities, capability, runtime_id=self._request.runtime.id)

    def _kept(self) -> SessionKeeper:
        if self._keeper is None:
            raise InputError("session.no-id", "the session was opened without an id, so nothing of it is kept")
        return self._keeper

    def _ready(self) -> None:
        has_begun = self._supervision.session is not None or self._lifecycle is not None
        if self._over is not None or not has_begun:
            raise InputError("session.over", f"the session has ended: {self._over or 'it never started'}")
        if self._work is not None:
            raise InputError("session.busy", "a turn is running; await or interrupt it first")

    def _begin(self, start: Callable[[], Awaitable[None]], *, text: str | None) -> Turn:
        turn = Turn(self._stream)
        # Recorded before the agent gets the prompt, so that the request is on record even if the agent is gone.
        self._supervision.tap.record(TurnWanted(text=text))
        self._work = _Work(do=partial(self._take, start), turn=turn)
        self._wake.set()
        return turn

    async def _take(self, start: Callable[[], Awaitable[None]]) -> None:
        if self._turns is not None:
            await self._turns.take(start)
        else:
            await take_turn(self._supervision, start)

    async def _ask(self, prompt: str, output_schema: Mapping[str, Any] | None) -> None:
        session = self._supervision.session
        if self._turns is not None:
            await self._turns.ask(prompt, output_schema=output_schema)
        elif session is not None:
            await session.turn(prompt, output_schema=output_schema)

    async def _settle(self, work: _Work) -> None:
        """End a turn, and end the session if a limit is exceeded or its process is gone."""
        supervision = self._supervision
        context = None
        if self._turns is not None:
            supervision.tap.record(TurnClosed())
            context = await self._turns.settle()
        self.failure = self.failure or supervision.failure()
        # The turn may have exceeded the limit after the last tick, and then no further turn may start.
        if self._over is None and isinstance(
            cause := supervision.watch.expired(self._request.clock.steady_s()), LimitExceeded
        ):
            self._record_stop(cause)
        # With a context engine, the next turn opens the thread again.
        if self._over is None and self._lifecycle is None and not supervision.is_agent_alive:
            self._over = "the agent's process is gone"
        self._work, self._wake = None, anyio.Event()
        if self._over is not None:
            self._wake.set()
        work.turn.conclude(self.ending, self.failure, context)

    async def _watched(self, work: Callable[[], Awaitable[None]], *, stop: anyio.Event) -> None:
        supervision = self._supervision
        await supervision.watched(work, stop=stop, failure=supervision.failure, on_stop=self._record_stop)

    def _record_stop(self, cause: Stop) -> None:
        """Record why the work is being stopped, before it is cancelled.

        The limits of tokens and evidence, the attempt clock and a failed record also end the session; other causes end
        only the turn.
        """
        supervision = self._supervision
        supervision.record_stop(
            cause,
            cancelled=lambda: CancelRequested(why="asked to stop" if self._work is None else self._work.why),
            is_hangup_recorded=supervision.recording.derivation.ending is not NOT_ENDED,
        )
        match cause:
            case LimitExceeded(limit=limit, most=most, used=used):
                self._over = limit_text(limit, most=most, used=used)
            case ClockExpiry(clock="attempt", limit_ms=limit_ms):
                self._over = f"its attempt clock expired after {limit_ms} ms"
            case ProctorError() if cause is supervision.failure():
                self.failure, self._over = cause, "its record could not be written"
            case _:
                pass
