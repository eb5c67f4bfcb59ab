"""One thread of Codex, driven turn by turn with a process each: nothing of it runs between them."""

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from proctor.contain.identity import pin, send_signal
from proctor.errors import DeadlineError, HangupError, RefusedError, disk_refusal
from proctor.event.row import ChildExited, Dir, HistoryKept, StepTaken
from proctor.fact import Fact
from proctor.ids import ThreadId
from proctor.runtime.base import HostAsk, SessionAsk, Tap
from proctor.runtime.codex.home import codex_home, own_variables
from proctor.runtime.codex_exec import steps, wire
from proctor.runtime.codex_exec.command import Opening, arguments, opening_of
from proctor.runtime.codex_exec.known import session_facts
from proctor.runtime.codex_exec.rollout import Rollout, find_rollout, read_rollout
from proctor.runtime.talk import PLAIN, SEND_S, Count, Routed, Talk, open_talk
from proctor.transport.process import Patience

# Its stdin is closed from the start: what it gets at the end is the time to leave by itself.
PATIENCE: Final = Patience(eof_s=2.0)
INTERRUPT_S: Final = 3.0
SETTLE_S: Final = 15.0


class ExecSession:
    """Control looks at the type of a raw line alone; what lines mean is folded from the record."""

    is_alive = True  # each turn has a process of its own

    def __init__(self, ask: SessionAsk, tap: Tap, *, host: HostAsk, count: Count) -> None:
        self._ask = ask
        self._tap = tap
        self._host = host
        self._count = count
        self._thread: ThreadId | None = None
        self._talk: Talk | None = None
        self._is_ended = self._is_halted = self._is_unwanted = False
        self._over = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()
        self._rollout: Rollout | None = None

    # ── what the supervisor sees ──

    @property
    def session_id(self) -> str:
        return f"{self._ask.attempt}/{self._thread}"

    @property
    def thread(self) -> ThreadId | None:
        return self._thread

    @property
    def facts(self) -> Mapping[str, Fact]:
        return session_facts(self._ask, self._rollout, thread=self._thread)

    @property
    def last_heard_s(self) -> float:
        return self._host.clock.steady_s() if self._talk is None else self._talk.heard_s

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        if not self._idle.is_set():
            raise RefusedError("peer.refused", "a turn runs already")
        opening = opening_of(self._ask, current=self._thread)
        self._idle, self._over = anyio.Event(), anyio.Event()
        self._is_ended = self._is_halted = self._is_unwanted = False
        try:
            before = await self._read(opening.of)
            with _written(output_schema, folder=self._host.tmp) as schema:
                argv = arguments(self._host, self._ask, opening, schema=schema)
                await self._run(argv, opening, prompt, before=before)
            if not self._is_ended and not self._is_halted:
                raise HangupError("peer.hangup", "the agent ended before its turn did")
        finally:
            self._idle.set()

    async def steer(self, text: str) -> None:
        raise RefusedError("runtime.capability", "codex exec cannot be spoken to while a turn runs")

    async def compact(self) -> None:
        raise RefusedError("runtime.capability", "codex exec cannot be told to shorten its history")

    async def interrupt(self) -> None:
        self._is_unwanted = True
        if self._talk is not None and not self._is_ended:
            await self._halt(self._talk)

    async def settle(self) -> None:
        """A turn's process ends with the turn, and all that it started with it."""
        with anyio.move_on_after(SETTLE_S):
            await self._idle.wait()

    async def read_history(self) -> None:
        rollout = await self._read(self._thread)
        if rollout is None:
            raise RefusedError("peer.refused", "Codex keeps nothing of this thread")
        self._tap.say(HistoryKept(source="rollout", items=tuple(rollout.items)))

    # ── one turn ──

    async def _run(self, argv: Sequence[str], opening: Opening, prompt: str, *, before: Rollout | None) -> None:
        self._tap.say(StepTaken(step=steps.STARTED, detail={"how": opening.how, "argv": list(argv)}))
        if before is not None:
            self._tap.say(steps.counted(steps.STOOD, before.total))
        try:
            async with open_talk(
                argv,
                ask=self._host,
                listener=self,
                tap=self._tap,
                count=self._count,
                env=own_variables(self._host),
                cwd=self._ask.workspace,
                is_turns_own=True,
                patience=PATIENCE,
            ) as talk:
                self._talk = talk
                try:
                    # Somebody may have thought better of it while the program was started.
                    if not self._is_unwanted:
                        await self._say(talk, prompt)
                        await self._over.wait()
                finally:
                    # Shielded so that the agent can still note what it was told to leave; bounded by itself.
                    with anyio.CancelScope(shield=True):
                        if not self._over.is_set():
                            await self._halt(talk)
            if talk.exit is None and (ended := await talk.process.wait(deadline_s=0)) is not None:
                # Its output had closed before it ended.
                self._tap.say(ChildExited(code=ended.code, signal=ended.signal, is_turns_own=True))
        finally:
            self._talk = None
            with anyio.CancelScope(shield=True):
                await self._note_cost(before, opening)

    async def _say(self, talk: Talk, prompt: str) -> None:
        """To the last character and no further: a line end of ours would be a part of the prompt."""
        data = prompt.encode(errors="replace")
        self._tap.stage(Dir.OUT, data)
        self._tap.commit()
        # One that will not start does not read either, and says why on stderr.
        with suppress(HangupError):
            with anyio.move_on_after(SEND_S) as patience:
                await talk.channel.send(data)
            if patience.cancelled_caught:
                raise DeadlineError("peer.deadline", "the agent does not read its prompt")
        await talk.end_input()

    async def _halt(self, talk: Talk) -> None:
        """SIGINT lets it end its children and close its books, which SIGTERM does not; the rest is force."""
        if not self._is_halted:
            self._is_halted = True
            self._tap.say(StepTaken(step=steps.HALTED))
            agent = talk.process.agent
            pidfd = None if agent is None else pin(agent)
            if pidfd is not None:
                send_signal(pidfd, signal.SIGINT)
                os.close(pidfd)
        with anyio.move_on_after(INTERRUPT_S):
            await talk.closed.wait()
            return
        await talk.stop()

    async def _note_cost(self, before: Rollout | None, opening: Opening) -> None:
        """What the thread's own file says of the turn that is over."""
        after = self._rollout = await self._read(self._thread)
        earlier = {} if before is None or opening.how == "fork" else before.turns
        costs = [cost for turn, cost in ({} if after is None else after.turns).items() if turn not in earlier]
        if costs:
            self._tap.say(steps.counted(steps.COST, costs[-1]))

    async def _read(self, thread: ThreadId | None) -> Rollout | None:
        if thread is None:
            return None

        def read() -> Rollout | None:
            path = find_rollout(codex_home(self._host), thread)
            return None if path is None else read_rollout(path)

        return await anyio.to_thread.run_sync(read)

    # ── what the turn's process says ──

    def route(self, line: bytes) -> Routed:
        return PLAIN

    def heard(self, line: bytes) -> None:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # As text: bytes that are none are on record as no message, also where they are in a part not looked at.
            type_ = msgspec.json.decode(line.decode(), type=wire.Envelope).type
            if type_ == "thread.started" and self._thread is None:
                self._thread = ThreadId(msgspec.json.decode(line, type=wire.ThreadStarted).thread_id)
            elif type_ in wire.ENDS:
                self._is_ended = True
                self._over.set()

    def hung_up(self, cause: str) -> None:
        self._over.set()


@contextmanager
def _written(schema: Mapping[str, Any] | None, *, folder: Path) -> Iterator[Path | None]:
    """The schema as the file that the program wants."""
    if schema is None:
        yield None
        return
    try:
        descriptor, name = tempfile.mkstemp(prefix="schema-", suffix=".json", dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(schema))
    except OSError as error:
        raise disk_refusal(error, path=folder) from error
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
