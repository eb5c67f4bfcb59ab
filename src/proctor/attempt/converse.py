"""A conversation: one session of many turns, under the same clocks and with the same record as an attempt."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from proctor.attempt.derive import Derivation
from proctor.attempt.finalize import Conversation
from proctor.attempt.model import AttemptAsk
from proctor.attempt.stream import EventStream, Placed
from proctor.attempt.tap import RecordingTap
from proctor.attempt.turn import TEARDOWN_S, take_turn
from proctor.attempt.watchdog import Fired, Overspent, Watch, under_watch
from proctor.errors import HangupError, InputError, ProctorError
from proctor.event.model import Event, TextSaid, TurnAsked
from proctor.event.outcome import NOT_ENDED, Ending, Outcome
from proctor.event.row import ClockRanOut, StepTaken, TurnWanted, UsedUp, WasCancelled, WasRefused
from proctor.ids import AttemptId, ThreadId
from proctor.runtime.base import Session
from proctor.runtime.capability import demand


class Turn:
    """One prompt and what came of it: iterate over it for its events, await it for how it ended."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._began = stream.offset
        self._end: int | None = None
        self._ending = NOT_ENDED
        self._failure: ProctorError | None = None
        self._over = anyio.Event()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    def __await__(self) -> Generator[Any, None, Ending]:
        return self._wait().__await__()

    async def _events(self) -> AsyncIterator[Event]:
        async for _, event in self._stream.after(self._began, end=lambda: self._end):
            yield event
        await self._wait()

    async def _wait(self) -> Ending:
        await self._over.wait()
        if self._failure is not None:
            raise self._failure
        return self._ending

    def conclude(self, ending: Ending, failure: ProctorError | None) -> None:
        """Told by the session, once."""
        self._end, self._ending, self._failure = self._stream.offset, ending, failure
        self._over.set()
        self._stream.wake()


@dataclass(slots=True, kw_only=True)
class _Work:
    """What the session is to do next, and how to stop it."""

    do: Callable[[], Awaitable[None]]
    turn: Turn
    stop: anyio.Event = field(default_factory=anyio.Event)
    why: str = "asked to stop"


class LiveSession:
    """An open conversation with an agent.

    One turn runs at a time, in a task of the session's own: it goes on when nobody reads, and ends with the session.
    What is read comes from the record, by offset, so several may read, and one that was cut off loses nothing.
    """

    def __init__(
        self,
        ask: AttemptAsk,
        *,
        workspace: Path,
        folder: Path | None,
        watch: Watch,
        stream: EventStream,
    ) -> None:
        self.workspace = workspace
        """Where the agent works."""
        self.folder = folder
        """Where the evidence is, if it is kept on disk."""
        self.answer: str | None = None
        """What the agent said last in the last turn."""
        self.failure: ProctorError | None = None
        """Why the record is no longer whole, if so."""
        self.conversation = Conversation(is_fresh=ask.resume is None and ask.fork is None)
        self._ask = ask
        self._watch = watch
        self._stream = stream
        self._session: Session | None = None
        self._tap: RecordingTap | None = None
        self._derivation: Derivation | None = None
        self._work: _Work | None = None
        self._wake = anyio.Event()
        self._over: str | None = None
        self._done = anyio.Event()
        self._scope = anyio.CancelScope(shield=True)

    # ── what a user does ──

    @property
    def id(self) -> AttemptId:
        return self._ask.attempt_id

    @property
    def thread(self) -> ThreadId | None:
        """The agent's own name for the conversation, with which a persistent one is resumed."""
        return None if self._session is None else self._session.thread

    @property
    def offset(self) -> int:
        """Of the last event so far; 0 before the first."""
        return self._stream.offset

    @property
    def ending(self) -> Ending:
        """How the last turn ended: its outcome, code and detail. Unknown while one runs."""
        return NOT_ENDED if self._derivation is None or self._work is not None else self._derivation.ending

    @property
    def outcome(self) -> Outcome:
        """How the last turn ended, in a word."""
        return self.ending.outcome

    def say(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> Turn:
        """Begin a turn, at once. InputError where one runs already or the session has ended."""
        session = self._ready()
        if output_schema is not None:
            self._demand("structured_output")
        return self._begin(session, lambda: session.turn(prompt, output_schema=output_schema), text=prompt)

    async def steer(self, text: str) -> None:
        """Say something into the running turn. RefusedError where the agent will not have it."""
        if self._work is None or self._session is None:
            raise InputError("session.idle", "there is no turn to steer")
        self._demand("turn_steer")
        await self._session.steer(text)

    async def interrupt(self) -> None:
        """End the running turn as cancelled, with what it runs, and wait for that. Nothing where none runs."""
        if self._work is not None:
            work = self._work
            work.why = "interrupted by the caller"
            work.stop.set()
            await work.turn

    async def compact(self) -> Ending:
        """Have the agent shorten its history, in a turn of its own, and wait for how that ends."""
        session = self._ready()
        self._demand("compaction")
        return await self._begin(session, session.compact, text=None)

    def events(self, *, after: int = 0) -> AsyncIterator[Placed]:
        """Every event after that offset, then those that happen, to the end of the session, each with its offset.

        InputError for an offset that is not there yet, or no longer kept.
        """
        return self._stream.after(after)

    # ── what the supervisor does ──

    def begin(self, session: Session, tap: RecordingTap, derivation: Derivation) -> None:
        """There is a thread to talk in, and a record of it."""
        self._session, self._tap, self._derivation = session, tap, derivation

    async def live(self) -> None:
        """Take turns until closed, until the session's clock fires, or until there is nobody to talk to."""
        try:
            # Shielded so that a cancelled caller's turn ends as cancelled, on record; `close` is what ends it.
            with self._scope:
                while self._over is None:
                    await self._watched(self._wake.wait, stop=anyio.Event())
                    if (work := self._work) is not None:
                        if self._over is None:
                            await self._watched(work.do, stop=work.stop)
                        self._settle(work)
        finally:
            self._over = self._over or "the session was closed"
            self._done.set()

    async def close(self, *, why: str | None = None) -> None:
        """End what runs, as cancelled, and take no more; bounded. `why` where it is not for its user to end it."""
        is_cut_off = why is not None and self._over is None
        said = why or "the session was closed"
        self._over = self._over or said
        if self._work is not None and not self._work.stop.is_set():
            self._work.why = said
            self._work.stop.set()
        elif is_cut_off and self.ending is NOT_ENDED and self._tap is not None:
            self._tap.say(WasCancelled(why=said))
        self._wake.set()
        with anyio.move_on_after(2 * TEARDOWN_S):
            await self._done.wait()
        self._scope.cancel()

    def saw(self, event: Event) -> None:
        """Keeps the answer, and hands the event on to the clocks and to who reads."""
        if isinstance(event, TurnAsked):
            self.answer = None
        elif isinstance(event, TextSaid):
            self.answer = event.text
        self._watch.saw(event)
        self._stream.publish(event)

    def _demand(self, capability: str) -> None:
        demand(self._ask.runtime.claims, capability, strategy=self._ask.runtime.id)

    def _ready(self) -> Session:
        if self._over is not None or self._session is None:
            raise InputError("session.over", f"the session has ended: {self._over or 'it never began'}")
        if self._work is not None:
            raise InputError("session.busy", "one turn at a time")
        return self._session

    def _begin(self, session: Session, ask: Callable[[], Awaitable[None]], *, text: str | None) -> Turn:
        assert self._tap is not None, "a session that is ready has a record"
        turn = Turn(self._stream)
        # On record before the agent is asked: where nobody is left to ask, the turn was wanted all the same.
        self._tap.say(TurnWanted(text=text))
        watch, clock = self._watch, self._ask.clock
        self._work = _Work(do=lambda: take_turn(session, ask, watch=watch, clock=clock), turn=turn)
        self._wake.set()
        return turn

    def _settle(self, work: _Work) -> None:
        """The turn is over; whether the session is too, depends on what is left of it."""
        lease = self.conversation.lease
        self.failure = self.failure or self.broken()
        # The tick may come after the turn that used them up, and the next one is not to be begun.
        if self._over is None and isinstance(cause := self._watch.fired(self._ask.clock.steady_s()), Overspent):
            self._record_stop(cause)
        is_alive = self._session is not None and self._session.is_alive
        if self._over is None and (lease is None or not lease.host.is_alive or not is_alive):
            self._over = "the agent's process is gone"
        self._work, self._wake = None, anyio.Event()
        if self._over is not None:
            self._wake.set()
        work.turn.conclude(self.ending, self.failure)

    async def _watched(self, work: Callable[[], Awaitable[None]], *, stop: anyio.Event) -> None:
        await under_watch(
            work,
            self._watch,
            clock=self._ask.clock,
            heard_s=self._heard_s,
            failure=self.broken,
            stop=stop,
            on_stop=self._record_stop,
        )

    def _heard_s(self) -> float:
        if self._session is None or not self._watch.is_in_turn:
            return self._ask.clock.steady_s()
        return self._session.last_heard_s

    def broken(self) -> ProctorError | None:
        """Why the record cannot be kept: the session's own, or that of the process it has a place in."""
        lease, tap = self.conversation.lease, self._tap
        return (tap and tap.failure) or (None if lease is None else lease.failure())

    def _record_stop(self, cause: Fired | Overspent | ProctorError) -> None:
        assert self._tap is not None
        assert self._derivation is not None, "a session that lives has a record"
        match cause:
            case Overspent(most=most, used=used):
                self._tap.say(UsedUp(limit="tokens", most=most, used=used))
                self._over = f"{used} tokens were used, and {most} are allowed"
            case Fired(clock=None):
                self._tap.say(WasCancelled(why="asked to stop" if self._work is None else self._work.why))
            case Fired(clock=clock, limit_ms=limit_ms) if clock is not None:
                self._tap.say(ClockRanOut(clock=clock, limit_ms=limit_ms))
                if clock == "attempt":
                    self._over = f"it ran past {limit_ms} ms"
            case HangupError() if self._derivation.ending is not NOT_ENDED:
                # The connection has put the end of the channel on record already.
                self._tap.say(StepTaken(step="hangup", detail={"what": str(cause)}))
            case ProctorError():
                self._tap.say(WasRefused(code=cause.code, detail=str(cause)))
                if cause is self.broken():
                    self.failure, self._over = cause, "its record could not be kept"
